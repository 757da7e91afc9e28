"""Train a small language model on the bytes of files: on one GPU, or under torchrun on many of them.

It stands for your own training, and does what the platform wants of one: it finds its peers in torchrun's environment,
keeps checkpoints, resumes from the last one, and saves once more when it is stopped. It needs PyTorch alone.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
from torch import distributed, nn

LENGTH, WIDTH = 256, 256


class Model(nn.Module):
    """A transformer that predicts the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The logits of the byte after each one."""
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        places = self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.layers(self.bytes(text) + places, mask=mask, is_causal=True))


def corpus(folder: Path) -> torch.Tensor:
    """The files of a folder, about a GiB of them at most; made-up bytes where there are too few."""
    text = bytearray()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and len(text) < 1 << 30:
            text += file.read_bytes()[: 1 << 30]
    return torch.frombuffer(text if len(text) > LENGTH else bytearray(range(256)) * 4096, dtype=torch.uint8)


def main() -> None:
    """Train, from the last checkpoint on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default="/data")
    parser.add_argument("--checkpoints", type=Path, default="/checkpoints")
    parser.add_argument("--name", default=f"model-{os.environ.get('JOB_COMPLETION_INDEX', 0)}")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    batch, rate = int(os.environ.get("BATCH_SIZE", "32")), float(os.environ.get("LEARNING_RATE", "3e-4"))
    rank, peers = int(os.environ.get("RANK", "0")), "TORCHELASTIC_RUN_ID" in os.environ
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if peers:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    model, text, first = Model().to(device), corpus(args.data), 0
    optimizer, saved = torch.optim.AdamW(model.parameters(), lr=rate), args.checkpoints / f"{args.name}.pt"
    if saved.exists():
        state = torch.load(saved, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    trained = nn.parallel.DistributedDataParallel(model) if peers else model
    torch.manual_seed(1000 * first + rank)
    for step in range(first, args.steps):
        starts = torch.randint(len(text) - LENGTH, (batch,)).tolist()
        chunk = torch.stack([text[start : start + LENGTH + 1] for start in starts]).long().to(device)
        loss = nn.functional.cross_entropy(trained(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
        if rank == 0 and (stopped or step % 500 == 499 or step + 1 == args.steps):
            args.checkpoints.mkdir(parents=True, exist_ok=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)  # so that a crash leaves the last one whole
        if stopped:
            raise SystemExit(128 + stopped[0])
    if peers:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
