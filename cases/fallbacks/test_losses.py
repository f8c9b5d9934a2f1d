"""The loss of a language model: batches without a label, and a batch that is taken in parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, values
from conformance.instruments.weights import uniform

Loss = Callable[[Tensor, Tensor], Tensor]

#: What torch and tokenizers write where there is nothing to predict.
NONE = -100


def mean_over_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over the count, which is 1 at least."""
    return functional.cross_entropy(logits, labels, reduction="sum") / (labels != NONE).sum().clamp(min=1)


def means_of_nothing(logits: Tensor, labels: Tensor) -> Tensor:
    """The default: of no label the mean is NaN, and so is every gradient."""
    return functional.cross_entropy(logits, labels)


@values
@catches(means_of_nothing, loss=mean_over_labels)
def test_batch_without_a_label_teaches_nothing(loss: Loss, device: torch.device) -> None:
    """A batch whose labels are all to be ignored has the loss 0 and gradients of 0; one with labels has torch's own mean.

    huggingface/transformers#34191, whose fix divides by a count of one's own. `cross_entropy` gives NaN on 1.13 to 2.15, as documented.
    """
    logits = uniform((4, 5)).to(device).requires_grad_()
    value = loss(logits, torch.full((4,), NONE, device=device))
    value.backward()
    assert value.item() == 0.0
    assert logits.grad is not None
    assert not bool(logits.grad.any())
    labels = torch.tensor([0, NONE, 2, NONE], device=device)
    torch.testing.assert_close(loss(logits, labels), functional.cross_entropy(logits, labels))


#: A batch in parts of unequal numbers of labels: 4, 1 and none.
PARTS = ((0, 1, 2, 3), (4, NONE, NONE, NONE), (NONE, NONE, NONE, NONE))

Accumulate = Callable[[Tensor, "list[Tensor]"], None]


def by_labels_of_the_whole(logits: Tensor, labels: list[Tensor]) -> None:
    """Sums, each over the number of labels in all parts."""
    count = sum((part != NONE).sum() for part in labels)
    for row, part in zip(logits, labels):
        (functional.cross_entropy(row, part, reduction="sum") / count).backward()


def means_of_means(logits: Tensor, labels: list[Tensor]) -> None:
    """The mean of each part over the number of parts: a label alone counts as much as four together."""
    for row, part in zip(logits, labels):
        if bool((part != NONE).any()):
            (mean_over_labels(row, part) / len(labels)).backward()


def divides_once_more(logits: Tensor, labels: list[Tensor]) -> None:
    """By the labels of the whole, and then by the number of parts, as a trainer does that divides every loss."""
    count = sum((part != NONE).sum() for part in labels)
    for row, part in zip(logits, labels):
        (functional.cross_entropy(row, part, reduction="sum") / count / len(labels)).backward()


@values
@catches(means_of_means, divides_once_more, accumulate=by_labels_of_the_whole)
def test_parts_add_up_to_the_batch(accumulate: Accumulate, device: torch.device) -> None:
    """Gradients accumulated over parts of a batch are those of the whole batch, however the labels lie in the parts.

    huggingface/transformers#34191, huggingface/transformers#35203, huggingface/transformers#37766. 1.13 to 2.15.
    """
    labels = [torch.tensor(part, device=device) for part in PARTS]
    parts, whole = (uniform((3, 4, 5)).to(device).requires_grad_() for _ in range(2))
    accumulate(parts, labels)
    functional.cross_entropy(whole.flatten(0, 1), torch.cat(labels)).backward()
    assert parts.grad is not None
    assert whole.grad is not None
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-5, atol=1e-7)
