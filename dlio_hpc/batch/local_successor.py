"""Program of a local job that depends on others: `python local_successor.py ID... -- COMMAND...` waits until the jobs
with these ids have ended, then executes the command in its place.
"""

import os
import sys
import time

_LOOK_S = 0.5


def main() -> None:
    """Run the program. First remove the folder of this file from sys.path, because its modules would shadow others of
    the same name.
    """
    del sys.path[0]
    from dlio_hpc.batch.schedulers.local import lives

    end = sys.argv.index("--")
    ids, command = sys.argv[1:end], sys.argv[end + 1 :]
    while ids := [job_id for job_id in ids if lives(job_id)]:  # drops ended jobs, which are slow to check
        time.sleep(_LOOK_S)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
