"""A process that holds simulated clients: ``python -m perdl.engines.worker``, started by :mod:`.processes`.

Messages come through standard input, answers leave through standard output, in pickled lists. One user owns both ends.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import BinaryIO

from flwr.supercore.task_identity import TaskIdentity

from common.threads import one_blas_thread
from perdl.engines.in_process import answer_of, contexts_of
from perdl_client.app import app


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer messages until there are no more.

    Parameters
    ----------
    questions, answers : binary file
        Where lists of messages come from, and where lists of answers go.
    """
    run_id, server, configs = pickle.load(questions)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, server, 1
    contexts = contexts_of(run_id, configs)
    with one_blas_thread():
        while True:
            try:
                messages = pickle.load(questions)
            except EOFError:  # the parent has ended
                return
            pickle.dump([answer_of(app, message, contexts) for message in messages], answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


def main() -> None:
    """Serve standard input and output. What else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
