"""A command as a process of its own that imports nothing: a copy of this one, which has imported all."""

import importlib
import os
import signal
import sys

from processes import wait_for


class Forked:
    """Like subprocess.Popen. printed: the file that its output goes to."""

    def __init__(self, name, *words, printed, environ):
        module = importlib.import_module(f"dlperf.{name}")
        self.returncode = None
        self.pid = os.fork()
        if not self.pid:
            self._run(module, [str(word) for word in words], printed, environ)

    def _run(self, module, words, printed, environ):
        code = 99
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.environ.update(environ)
            code = module.main(words)
            sys.stdout.flush()
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        wait_for(lambda: self.poll() is not None)
        return self.returncode
