# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of the training checks: a small causal transformer that can be split by blocks and by tensors."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 64
HEAD_SIZE = 8


class Block(nn.Module):
    """Attention and a feed-forward part. There are as many heads as the projections give, so that they can be split."""

    def __init__(self, width: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        self.norm_attention, self.norm_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _unused in range(3))
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_attention(x)
        query, key, value = (
            part(y).unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_forward(x))))


class Model(nn.Module):
    """Tokens in, logits out. A stage of a pipeline holds some of the blocks; the names of its parameters stay."""

    def __init__(self, width: int, blocks: int, head_size: int = HEAD_SIZE) -> None:
        super().__init__()
        self.embed: Optional[nn.Module] = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleDict({str(number): Block(width, head_size) for number in range(blocks)})
        self.head: Optional[nn.Module] = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(x)

    def keep(self, first: int, last: int) -> None:
        """Become the stage that holds blocks `first` to `last` exclusive."""
        total = len(self.blocks)
        if first > 0:
            self.embed = None
        if last < total:
            self.head = None
        self.blocks = nn.ModuleDict({name: b for name, b in self.blocks.items() if first <= int(name) < last})


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def tokens(samples: int, length: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same text on every rank: input and what follows each of its tokens."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(VOCABULARY, (samples, length + 1), generator=generator).to(device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
