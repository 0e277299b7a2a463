from strongticket import Ticket
from strongticket.data.text import Text
from strongticket.files import Json
from strongticket.learn.evaluate import validation_loss
from strongticket.learn.hide import hide
from strongticket.learn.policy import Init, Policy
from strongticket.learn.recorded import record
from strongticket.models.gpt2 import GPT2, gpt2_config

LENGTH, SEQUENCES = 64, 16


def language_ticket(metadata: dict[str, Json] | None = None, *, vocabulary: int = 256, gain: float = 1.0) -> Ticket:
    """Make the ticket of a nano GPT-2 with masks as they are drawn."""
    model = GPT2(gpt2_config("nano", vocabulary=vocabulary, bias=False))
    return hide(model, Policy(output_gain=gain), seed=7).to_ticket(metadata)


def recorded_ticket(text: Text, init: Init = "own") -> Ticket:
    """Make the ticket a run on this text would leave, with the loss it measured on the masked model itself."""
    model = GPT2(gpt2_config("nano", vocabulary=text.tokenizer.vocabulary, bias=False))
    hidden = hide(model, Policy(init=init), seed=7)
    loss = validation_loss(hidden.model, text.valid, length=LENGTH, sequences=SEQUENCES, device="cpu")
    measured = record(text, loss, {"length": LENGTH, "sequences": SEQUENCES, "precision": "float32"})
    return hidden.to_ticket({"search": measured})
