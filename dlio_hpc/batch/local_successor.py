"""Program that runs a local job later. `python local_successor.py [--begin=SECONDS] [ID]... -- COMMAND...` waits until
the time SECONDS (since 1970) has come, and until the jobs with the batch ids ID have ended. The program then replaces
itself with COMMAND (exec).
"""

import os
import sys
import time

_LOOK_S = 0.5
# Longest sleep before the begin time. The clock may be set, and it goes on while a machine is suspended.
_SLEEP_S = 60.0
_BEGIN = "--begin="


def main() -> None:
    """Run the program. The folder of this file is removed from sys.path first, because modules in it would shadow other
    modules with the same names.
    """
    del sys.path[0]
    from dlio_hpc.batch.schedulers.local import lives

    end = sys.argv.index("--")
    waits, command = sys.argv[1:end], sys.argv[end + 1 :]
    begins = max((float(text.removeprefix(_BEGIN)) for text in waits if text.startswith(_BEGIN)), default=0.0)
    while (left := begins - time.time()) > 0:
        time.sleep(min(left, _SLEEP_S))
    ids = [text for text in waits if not text.startswith(_BEGIN)]
    while ids := [job_id for job_id in ids if lives(job_id)]:  # drops ended jobs, which are slow to check
        time.sleep(_LOOK_S)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
