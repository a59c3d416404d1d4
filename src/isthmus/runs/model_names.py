"""Models by the names that help texts, forms and shells offer, without an import of PyTorch."""

OFFERED = ("gcn", "sage", "gin", "gat", "pna", "mlp", "multi-pna")
