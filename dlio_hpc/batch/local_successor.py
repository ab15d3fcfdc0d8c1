"""Program that runs a local job after the jobs that it depends on. `python local_successor.py ID... -- COMMAND...`
waits until the jobs with these batch ids have ended, and then replaces itself with COMMAND (exec).
"""

import os
import sys
import time

_LOOK_S = 0.5


def main() -> None:
    """Run the program. The folder of this file is removed from sys.path first, because modules in it would shadow other
    modules with the same names.
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
