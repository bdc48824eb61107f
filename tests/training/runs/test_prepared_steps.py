import os
import subprocess

from binocle.training.runs.prepared_steps import PreparedSteps

FORKING = """
import os
from binocle.training.runs.prepared_steps import PreparedSteps
prepared = PreparedSteps(lambda step: (step, [step] * 3, os.getpid()), workers=2)
wanted = (*range(5), *range(40, 43))
batches = [prepared(step) for step in wanted]
assert [(step, values) for step, values, _ in batches] == [(n, [n] * 3) for n in wanted], batches
assert os.getpid() not in {process for *_, process in batches}
del prepared  # which ends its processes
"""

TOKENIZING = """
from tokenizers import Tokenizer, models, pre_tokenizers
from binocle.training.runs.prepared_steps import PreparedSteps
tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
prepared = PreparedSteps(lambda step: len(tokenizer.encode_batch(["a a"] * 1_000)), workers=2)
assert [prepared(step) for step in range(5)] == [1_000] * 5
"""


def test_other_processes_prepare_the_steps_in_their_order_from_any_step(quick_training):
    # Not forked here, where Lance has threads.
    assert subprocess.run([*quick_training, "-c", FORKING], timeout=120).returncode == 0


def test_other_processes_tokenize_even_if_the_user_wants_threads(quick_training):
    """They would wait for threads that only the process before the fork has."""
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "true"}
    assert subprocess.run([*quick_training, "-c", TOKENIZING], timeout=120, env=environment).returncode == 0


def test_without_a_gpu_this_process_prepares_them():
    assert PreparedSteps(lambda _: os.getpid(), workers=0)(7) == os.getpid()
