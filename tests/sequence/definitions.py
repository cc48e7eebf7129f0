"""The papers' equations token by token from a layer's weights, sharing nothing else with it."""

import math

import torch
import torch.nn.functional as F


def heads(x, h):
    """[N,C] -> [h,N,d]"""
    return x.unflatten(-1, (h, -1)).transpose(0, 1)


def qkv_of(layer, x):
    return F.linear(x, layer.qkv.weight, layer.qkv.bias).chunk(3, dim=-1)


def sines(n, C):
    f = [10000 ** (-2 * i / C) for i in range(C // 2)]
    return torch.tensor(
        [math.sin(n * v) for v in f] + [math.cos(n * v) for v in f], dtype=torch.float64
    )


def normed(norm, x):
    return x if norm is None else F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def causal_long_short(layer, x):
    """[N,C] -> [N,C]: for each token its window and the vectors of each finished segment."""
    h, l, r, w = layer.num_heads, layer.segment, layer.rank, layer.window  # noqa: E741
    N, C = x.shape
    q, k, v = qkv_of(layer, x)
    bars = []
    for s in range(N // l if r else 0):
        here = slice(s * l, (s + 1) * l)
        P = layer.dynamic_projection(x[here]).softmax(0).unflatten(-1, (h, r))
        k_bar, v_bar = (
            torch.einsum("lhr,lhd->rhd", P, y[here].unflatten(-1, (h, -1))).flatten(1)
            for y in (k, v)
        )
        bars.append((normed(layer.norm_projected, k_bar), normed(layer.norm_projected, v_bar)))
    k, v = normed(layer.norm_kv, k), normed(layer.norm_kv, v)
    out = []
    for t in range(N):
        first = max(0, (t // w - 1) * w if layer.grouped else t - w + 1)
        query = heads(q[t : t + 1] * (C // h) ** -0.5, h)[:, 0]
        scores, values = [], []
        for s in range(first, t + 1):
            key = k[s].unflatten(-1, (h, -1))
            where = layer.window_position(sines(t - s, C)).unflatten(-1, (h, -1))
            scores.append(
                ((query + layer.key_bias) * key + (query + layer.position_bias) * where).sum(-1)
            )
            values.append(v[s].unflatten(-1, (h, -1)))
        for s in range(t // l if r else 0):
            for j in range(r):
                key = bars[s][0][j] + layer.segment_position(sines((t // l - s) * r - 1 - j, C))
                scores.append((query * key.unflatten(-1, (h, -1))).sum(-1))
                values.append(bars[s][1][j].unflatten(-1, (h, -1)))
        weight = torch.stack(scores).softmax(0)
        out.append((weight[..., None] * torch.stack(values)).sum(0).flatten())
    return layer.proj(torch.stack(out))


def long_short(layer, x, cls=None, valid=None):
    """[N,C], class token [C] -> [N,C], [C]: long-short attention in both directions, Eqs. 3 to 7.

    LN_G acts on what stands in front, the class token's key and value first, whatever the rank.
    """
    h, r, w = layer.num_heads, layer.rank, 0 if layer.alone else layer.window[1]
    (N, C), e = x.shape, max(w // 2, 1)
    real = [t for t in range(N) if valid is None or valid[t]]
    q, k, v = qkv_of(layer, x)
    k, v = normed(layer.norm_kv, k), normed(layer.norm_kv, v)
    front = [] if cls is None else [qkv_of(layer, cls)[1:]]
    if r and real:
        P = layer.dynamic_projection(x[real]).softmax(0)
        for j in range(r):
            # channel head * r + j, for each channel of that head
            share = P[:, j::r].repeat_interleave(C // h, dim=1)
            front.append(((share * k[real]).sum(0), (share * v[real]).sum(0)))
    if layer.norm_kv is not None:  # DualLN is both norms or none
        norm = layer.norm_projected
        front = [[F.layer_norm(y, (C,), norm.weight, norm.bias) for y in pair] for pair in front]
    y = torch.zeros(N, C, dtype=x.dtype)
    for t in real:
        first, last = t // w * w - e if w else t, t // w * w + w + e if w else t + 1
        keys = [s for s in real if first <= s < last and (w or layer.alone)]
        y[t] = attention(
            q[t],
            torch.stack([*(pair[0] for pair in front), *(k[s] for s in keys)]),
            torch.stack([*(pair[1] for pair in front), *(v[s] for s in keys)]),
            h,
        )
    if cls is None:
        return layer.proj(y), None
    q_cls, k_cls, v_cls = qkv_of(layer, cls)
    keys, values = torch.stack([k_cls, *y[real]]), torch.stack([v_cls, *y[real]])
    return layer.proj(y), layer.proj(attention(q_cls, keys, values, h))


def attention(q, k, v, h):
    """One query [C] over keys [K,C] -> [C]."""
    q, k, v = q.unflatten(-1, (h, -1)), k.unflatten(-1, (h, -1)), v.unflatten(-1, (h, -1))
    weight = ((q * k).sum(-1) * q.shape[-1] ** -0.5).softmax(0)
    return (weight[..., None] * v).sum(0).flatten()


def slices(layer, x, P_l, P_g, E, valid=None, causal=False):
    """[N,C] -> [N,C]: composite slice attention in either direction, before the projection."""
    h, (N, C) = layer.num_heads, x.shape
    L = layer.slice_size if causal else layer.slice_size[1]
    valid = [True] * N if valid is None else valid.tolist()
    at = {
        (s, t): P_l[t - s * L + E]
        for s in range(N // L + 1)
        for t in range(N)
        if 0 <= t - s * L + E < len(P_l)
    }
    y_l = torch.zeros(N, C, dtype=x.dtype)
    for t in range(N):
        s = t // L
        last = t + 1 if causal else min(N, (s + 1) * L + E)
        keys = [j for j in range(max(0, s * L - E), last) if valid[j]]
        if not valid[t]:
            continue
        q, _, _ = qkv_of(layer, x[t] + at[s, t])
        k = torch.stack([qkv_of(layer, x[j] + at[s, j])[1] for j in keys])
        v = torch.stack([qkv_of(layer, x[j])[2] for j in keys])
        y_l[t] = attention(q, k, v, h)
    means = {}
    for s in range(-(-N // L)):
        own = [t for t in range(s * L, min(N, s * L + L)) if valid[t]]
        if own and not (causal and len(own) < L):
            means[s] = y_l[own].mean(0)
    y = y_l.clone()
    for t in range(N):
        s = t // L - 1 if causal else t // L
        keys = [j for j in means if not causal or j <= s]
        if not valid[t] or not keys:
            continue
        q, _, _ = qkv_of(layer, means[s] + P_g[s])
        k = torch.stack([qkv_of(layer, means[j] + P_g[j])[1] for j in keys])
        v = torch.stack([qkv_of(layer, means[j])[2] for j in keys])
        y[t] = y[t] + attention(q, k, v, h)
    return layer.proj(y)
