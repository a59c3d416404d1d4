"""Every kind of message in plain words: what it carries, of what it was computed, and what can be learnt from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from isthmus.core.kinds import Kind
from isthmus.runs.circumstances import Circumstance, Circumstances


class Clause(NamedTuple):
    """A part of a sentence that is told where something happened, and ``otherwise`` where it did not."""

    where: Circumstance
    text: str
    otherwise: str = ""


Text = str | tuple[str | Clause, ...]  # a sentence, or its parts


@dataclass(frozen=True)
class Words:
    """One kind of message in plain words: its name, what it carries, what it was computed from, and the risk.

    ``up``, ``down``, ``peer`` and those of devices replace ``what`` for messages in one direction.
    """

    name: str
    what: Text
    risk: str
    source: str
    up: Text = ""  # from a silo to the server
    down: Text = ""  # from the server to a silo
    peer: Text = ""  # from a silo to a silo
    handed_in: Text = ""  # from devices to a silo
    handed_down: Text = ""  # from a silo to its devices
    between_devices: Text = ""

    def meaning(self, direction: str, empty: bool = False, in_a_run: Circumstances = frozenset()) -> str:
        """Two sentences: what such a message in one direction carried, and what can be learnt from it."""
        said = _told(getattr(self, direction) or self.what, in_a_run)
        return f"{said} {'Here it was empty.' if empty else self.risk}"


def _told(text: Text, in_a_run: Circumstances) -> str:
    """A sentence without the clauses on what did not happen."""
    if isinstance(text, str):
        return text
    parts = (each if isinstance(each, str) else each[1 if each.where in in_a_run else 2] for each in text)
    return "".join(parts)


_IN_GROUPS = Clause(Circumstance.MASKED, ", masked, so that the silo reads sums over groups of devices alone")
_SHARE_OF = Clause(Circumstance.SHARED, "the first share of ")
_ALONE = Clause(Circumstance.SHARED, ", which alone is uniformly random")

WORDS: dict[Kind, Words] = {
    Kind.SCHEMA: Words(
        "column names and label names",
        "Names of silos, columns and labels, words that stand in columns, of which columns all cells are alike (and "
        "the number in them where that is so in all silos), and problems found while comparing them.",
        "This describes what sort of data a silo holds, not its records; words and labels of one record are told too.",
        "the heads of tables, and the words in them",
        down="The label names and words of all silos together, and problems found while comparing schemas.",
    ),
    Kind.IDS: Words(
        "ids of nodes",
        "Ids of nodes, as they are or as hashes.",
        "They tell which nodes exist. Read a hash as the id itself: the run's seed is enough to undo it.",
        "ids of nodes, and which of them edges lead to",
        up=(
            "Keyed hashes of the ids of the nodes a silo owns, to find nodes with two owners",
            Clause(
                Circumstance.MERGING,
                "; for how many nodes of a silo, and of how many neighbours of each a silo's part of an aggregate is, "
                "without saying which",
            ),
            Clause(Circumstance.CORRECTING, "; keys of all nodes that the server computes on"),
            ".",
        ),
        down="The hashes that two silos both sent; an empty list where every node has one owner.",
        peer=(
            "Public ids of this silo's nodes that the sender's edges refer to, and keys of those edges",
            Clause(
                Circumstance.SAMPLING,
                "; which of them a step needs, how far they lie from a seed, and the places of seeds in the batch or "
                "of targets among those of a step",
            ),
            Clause(Circumstance.TOUCHING, "; which of the sender's nodes its training has touched in a round"),
            ".",
        ),
        between_devices="Ids of the receiving devices' nodes that devices of other silos have edges to, and keys of "
        "those edges: each device hears of its own edges alone.",
    ),
    Kind.ORDER: Words(
        "the order of training nodes or edges",
        "Keyed hashes of training and evaluation ids, and their places in one common shuffle.",
        "They tell how many such nodes or edges each silo has and, to whoever knows the run's seed, which.",
        "ids of training and evaluated nodes or edges",
        up="Keyed hashes of a silo's training and evaluation ids, to be placed in one common shuffle.",
        down="The places of the silo's own nodes or edges in the common shuffle.",
    ),
    Kind.STATISTICS: Words(
        "sums, counts and label counts",
        "Sums and counts over a silo's nodes or edges: sizes of its splits, training and test labels of each class, "
        "degrees, moments of features and of batches.",
        "A sum or a count over few nodes can reveal the value or the label of one.",
        "features, labels and degrees of all nodes of a silo",
        down="Sums and label counts of all silos together, and the sizes of every silo's splits.",
        handed_in=("What each device adds to sums and counts over its silo", _IN_GROUPS, "."),
    ),
    Kind.PORTS: Words(
        "port numbers and splits of cross edges",
        (
            "Port numbers of cross edges (the place of a neighbour in a node's list of neighbours)",
            Clause(
                Circumstance.EDGE_LABELS,
                "; the split of each cross edge, and whether the sender has its label, but not the label",
            ),
            ".",
        ),
        "A high number tells that the node has at least as many neighbours; that a label is there can be telling.",
        "lists of neighbours",
    ),
    Kind.PARAMETERS: Words(
        "model weights",
        "Model weights.",
        "Weights carry traces of the training data: membership and inversion attacks can tell whether a node "
        "was trained on, or recover part of what it held.",
        "all data that a silo trains on",
        up="The weights of a silo's model after training on its own data.",
        down="Weights combined from the models of all silos.",
        handed_down="The weights of the silo's model, with which each of its devices computes.",
    ),
    Kind.GRADIENTS: Words(
        "gradients",
        "Gradients of the loss for every model weight.",
        "Inversion and membership attacks can recover training inputs and labels from gradients, the better "
        "the fewer nodes they were taken over.",
        "all data that a silo trains on",
        up="Gradients of the loss on a silo's own training data, for every model weight.",
        down=(
            "Gradients combined from all silos",
            Clause(Circumstance.CORRECTING, "; those of the server's own steps"),
            ".",
        ),
        handed_in=("The gradient of each device's loss for every model weight", _IN_GROUPS, "."),
    ),
    Kind.EMBEDDINGS: Words(
        "embeddings of single nodes",
        "Rows that the model computed for single boundary nodes, or for sums of a few of them.",
        "Rows are computed from features and neighbours of a node and can be used to infer its attributes.",
        "features of single nodes and, behind the first layer, of their neighbours",
        handed_in="For every edge and layer the second share of a neighbour's row, encrypted for the silo and passed "
        "on by its device with shares of zero among them; alone it is uniformly random.",
        between_devices=("For every edge and layer ", _SHARE_OF, "the row of a neighbour", _ALONE, "."),
    ),
    Kind.ADJOINTS: Words(
        "derivatives for boundary rows",
        "Derivatives of the loss for rows that crossed the boundary.",
        "They depend on the labels and inputs of whoever computed the loss, and can reveal both in part.",
        "labels and rows of the training nodes next to a boundary row",
        up="Derivatives of a silo's loss for aggregates that the server handed to it, one row for each target.",
        down="Derivatives of other silos' losses for the parts that this silo added to their aggregates.",
        handed_in="For every edge and layer the second share of a derivative, encrypted for the silo and passed on by "
        "its device with shares of zero among them; alone it is uniformly random.",
        between_devices=("For every edge and layer ", _SHARE_OF, "the derivative of a neighbour's loss", _ALONE, "."),
    ),
    Kind.PARTIALS: Words(
        "aggregates of rows of a few nodes",
        "Sums or extremes of rows that the model computed for neighbours of a node.",
        "An aggregate of one neighbour is that neighbour's row. From many aggregates over different neighbours single "
        "rows can be worked out. Attributes can be inferred from them.",
        "features of a few nodes at a time, and of their neighbours",
        up="For nodes of other silos, the sums or extremes of the rows that the model computed for a silo's own "
        "neighbours of them. The server sees whose part it is and for whom, not of which nodes.",
        down="For each of this silo's targets one row: the sum or extreme over its neighbours in all other silos, "
        "merged by the server, without saying whose they are.",
    ),
    Kind.METRICS: Words(
        "losses, scores and sizes of silos",
        (
            "Losses and scores of a silo, its numbers of nodes and halo nodes",
            Clause(Circumstance.MERGING, ", of targets of aggregates"),
            Clause(Circumstance.NOISE, ", and how often its rows and payloads left"),
            ".",
        ),
        "Over few nodes they can reveal a single outcome.",
        "predictions and labels over all nodes of a silo",
        down=(
            "Losses, scores, and numbers of nodes and halo nodes",
            Clause(Circumstance.MERGING, ", of targets of aggregates"),
            Clause(Circumstance.NOISE, ", and of releases"),
            " of every silo.",
        ),
        handed_in=("What each device adds to its silo's losses and scores", _IN_GROUPS, "."),
    ),
    Kind.SCORES: Words(
        "predictions and labels of single nodes or edges",
        "The prediction and the true label of every evaluated node or edge, one by one.",
        "These are individual records, labels included.",
        "single nodes or edges: these are records",
    ),
    Kind.AGGREGATES: Words(
        "sums of raw node features",
        "Sums of the raw features of nodes and their neighbours, weighted by degrees.",
        "A sum over one neighbour is that neighbour's features, as they are: its weight is known or easily guessed. "
        "From sums over a few, and from what a silo knows itself, single nodes' features can be worked out.",
        "raw features of a node and its neighbours",
        peer=(
            "Sums of raw node features, weighted by degrees: what the sender's nodes add up to at one of this silo's "
            "nodes",
            Clause(
                Circumstance.TWO_HOPS,
                ", and the whole sum of a node of the sender over itself and all its neighbours, also those in silos "
                "that share no edge with this one",
            ),
            ".",
        ),
    ),
    Kind.FEATURES: Words(
        "raw features of single nodes and edges",
        "The features of nodes and edges, as they are.",
        "These are individual records.",
        "single nodes and edges: these are records",
    ),
    Kind.LABELS: Words(
        "labels of single nodes",
        "The true labels of nodes, one by one.",
        "These are individual records.",
        "single nodes: these are records",
    ),
    Kind.EDGES: Words(
        "edges",
        (
            "Which nodes are connected, by hashes of their ids, also inside a silo",
            Clause(Circumstance.READING_DEGREES, "; degrees of nodes"),
            Clause(Circumstance.READING_PORTS, "; ports of edges"),
            ".",
        ),
        "This is the graph itself, as far as it was sampled.",
        "single edges: these are records",
    ),
    Kind.LEDGER: Words(
        "counts of messages, from the silos' ledgers",
        "Lines of a silo's ledger, sent at the end of a run on several hosts: who sent how many messages, rows and "
        "bytes of which kind to whom, at which step and under which protection, without their contents.",
        "They tell which silos have edges with each other, and about how many.",
        "counts of messages",
        down="Lines of the ledgers of others and of the server, sent at the end of a run on several hosts: of the "
        "messages that this silo has received, and of no others.",
    ),
    Kind.PROTOTYPES: Words(
        "means of groups of nodes' rows",
        "Means of the rows that a silo's own model computed for groups of its nodes, each over several nodes.",
        "A mean tells what its nodes have in common; a mean of one node would be that node's row. Attributes of nodes "
        "can be inferred from it, the better the smaller their group is.",
        "features and neighbours of the nodes of a group",
    ),
    Kind.GENERATED: Words(
        "generated rows of neighbours that nobody knows",
        "Rows that a silo's generator made for neighbours that its nodes may miss: features or embeddings of nodes "
        "that do not exist.",
        "They follow from features and neighbours of single nodes; a generator that has learnt much of its silo's "
        "nodes repeats them.",
        "a generator that has learnt from a silo's nodes and their neighbours",
    ),
    Kind.ROW_GRADIENTS: Words(
        "gradients for generated rows",
        "For every row that the receiver generated, the derivative of its squared distance to the nearest row of the "
        "sender's nodes.",
        "It is twice the difference of both rows, and the receiver knows one of them: it can work out the other, which "
        "are the features, or the embedding, of one of the sender's nodes, as they are.",
        "the features, or the embedding, of one node",
    ),
    Kind.SHARE_SUMS: Words(
        "sums of shares of neighbours' rows",
        "For a device, the sum of those shares of its neighbours' rows that it holds.",
        "By itself it is uniformly random; together with the sum of the other shares, which its silo holds, it opens "
        "the sum of the rows, which the silo reads and hands back. A sum over one neighbour is that neighbour's row.",
        "shares of the rows of a device's neighbours",
        down="For each of this silo's targets the sum of the first shares of all silos' parts, and for each part that "
        "this silo made the first share of the derivative of its sum.",
        peer="For each device of this silo the sum of those shares of its neighbours' rows that the sender holds.",
    ),
    Kind.NEIGHBOUR_SUMS: Words(
        "sums of neighbours' rows",
        "For a device, the sum of its neighbours' rows at a layer, or of their derivatives, as its silo opened it.",
        "A sum over one neighbour is that neighbour's row. Who is one of two neighbours can subtract its own.",
        "the rows of a device's neighbours",
    ),
    Kind.KEYS: Words(
        "public keys of a secure sum",
        "Public keys, drawn anew for one sum, by which its clients agree on masks and seal letters to each other.",
        "They tell who takes part.",
        "random numbers",
        down="The public keys of all clients of a group.",
    ),
    Kind.KEY_SHARES: Words(
        "shares of secrets of a secure sum",
        "Shares of the secrets that masks are made of.",
        "One by one they tell nothing. As many as open a sum give one secret of a client; only both of its secrets "
        "would give its vector.",
        "random numbers",
        up="Shares of a client's secrets, each sealed for the client that keeps it; after the vectors, not sealed, one "
        "share of every client: of its own mask or, where it dropped out, of its mask key.",
        down="Shares of other clients' secrets, sealed for this one.",
    ),
    Kind.MASKED: Words(
        "vectors under masks that cancel in their sum",
        "Vectors of whole numbers under masks that look like random numbers and cancel in the sum over a group.",
        "One by one they tell nothing. The server learns their sum over each group, without noise: the fewer clients "
        "are in it, the more it tells of each.",
        "vectors that are added up, under random numbers",
        down="The list of clients whose masked vectors arrived.",
    ),
}
