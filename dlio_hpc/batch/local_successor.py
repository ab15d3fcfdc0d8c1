"""A local job that follows others: python local_successor.py ID... -- COMMAND... waits for the end of those jobs,
then becomes the command.
"""

import os
import sys
import time

_LOOK_S = 0.5


def main() -> None:
    """Modules beside this file are no modules of anybody's."""
    del sys.path[0]
    from dlio_hpc.batch.schedulers.local import lives

    end = sys.argv.index("--")
    ids, command = sys.argv[1:end], sys.argv[end + 1 :]
    while ids := [each for each in ids if lives(each)]:  # to ask for one that has ended takes long
        time.sleep(_LOOK_S)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
