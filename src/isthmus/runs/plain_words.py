"""Every kind of message in plain words: what it carries, and what can be learnt from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from isthmus.core.kinds import Kind


@dataclass(frozen=True)
class Words:
    """One kind of message in plain words: its name, what it carries, and the risk.

    ``up``, ``down``, ``peer`` and those of devices replace ``what`` for messages in one direction.
    """

    name: str
    what: str
    risk: str
    up: str = ""  # from a silo to the server
    down: str = ""  # from the server to a silo
    peer: str = ""  # from a silo to a silo
    handed_in: str = ""  # from devices to a silo
    handed_down: str = ""  # from a silo to its devices
    between_devices: str = ""

    def meaning(self, direction: str, empty: bool = False) -> str:
        """Two sentences: what such a message in one direction carries, and what can be learnt from it."""
        return f"{getattr(self, direction) or self.what} {'Here it was empty.' if empty else self.risk}"


WORDS: dict[Kind, Words] = {
    Kind.SCHEMA: Words(
        "column names and label names",
        "Names of silos, columns and labels, and problems found while comparing them.",
        "This describes what sort of data a silo holds, not its records.",
        down="The label names of all silos together, and problems found while comparing schemas.",
    ),
    Kind.IDS: Words(
        "ids of nodes",
        "Ids of nodes, as they are or as hashes.",
        "They tell which nodes exist. Read a hash as the id itself: the run's seed is enough to undo it.",
        up="Keyed hashes of the ids of the nodes a silo owns, to find nodes with two owners; where the server merges "
        "aggregates, for how many nodes of a silo, and of how many neighbours of each a silo's part is, without saying "
        "which; where the server corrects, keys of all nodes that it computes on.",
        down="The hashes that two silos both sent; an empty list where every node has one owner.",
        peer="Public ids of this silo's nodes that the sender's edges refer to, and keys of those edges; where steps "
        "are sampled, which of them a step needs, how far they lie from a seed, and the places of seeds in the batch "
        "or of targets among those of a step; "
        "where rows are released once a round, which of the sender's nodes its training has touched in that round.",
        between_devices="Ids of the receiving devices' nodes that devices of other silos have edges to, and keys of "
        "those edges: each device hears of its own edges alone.",
    ),
    Kind.ORDER: Words(
        "the order of training nodes or edges",
        "Keyed hashes of training and evaluation ids, and their places in one common shuffle.",
        "They tell how many such nodes or edges each silo has and, to whoever knows the run's seed, which.",
        up="Keyed hashes of a silo's training and evaluation ids, to be placed in one common shuffle.",
        down="The places of the silo's own nodes or edges in the common shuffle.",
    ),
    Kind.STATISTICS: Words(
        "sums, counts and label counts",
        "Sums and counts over a silo's nodes or edges: sizes of its splits, training and test labels of each class, "
        "degrees, moments of features and of batches.",
        "A sum or a count over few nodes can reveal the value or the label of one.",
        down="Sums and label counts of all silos together, and the sizes of every silo's splits.",
        handed_in="What each device adds to sums and counts over its silo; where it is masked, the silo reads sums "
        "over groups of devices alone.",
    ),
    Kind.PORTS: Words(
        "port numbers and splits of cross edges",
        "Port numbers of cross edges (the place of a neighbour in a node's list of neighbours); where edges carry "
        "labels, the split of each cross edge, and whether the sender has its label, but not the label.",
        "A high number tells that the node has at least as many neighbours; that a label is there can be telling.",
    ),
    Kind.PARAMETERS: Words(
        "model weights",
        "Model weights.",
        "Weights carry traces of the training data: membership and inversion attacks can tell whether a node "
        "was trained on, or recover part of what it held.",
        up="The weights of a silo's model after training on its own data.",
        down="Weights combined from the models of all silos.",
        handed_down="The weights of the silo's model, with which each of its devices computes.",
    ),
    Kind.GRADIENTS: Words(
        "gradients",
        "Gradients of the loss for every model weight.",
        "Inversion and membership attacks can recover training inputs and labels from gradients, the better "
        "the fewer nodes they were taken over.",
        up="Gradients of the loss on a silo's own training data, for every model weight.",
        down="Gradients combined from all silos; where the server corrects, those of its own steps.",
        handed_in="The gradient of each device's loss for every model weight; where it is masked, the silo reads sums "
        "over groups of devices alone.",
    ),
    Kind.EMBEDDINGS: Words(
        "embeddings of single nodes",
        "Rows that the model computed for single boundary nodes, or for sums of a few of them.",
        "Rows are computed from features and neighbours of a node and can be used to infer its attributes.",
        handed_in="For every edge and layer the second share of a neighbour's row, encrypted for the silo and passed "
        "on by its device with shares of zero among them; alone it is uniformly random.",
        between_devices="For every edge and layer the row of a neighbour or, where rows are divided into shares, the "
        "first share of it, which alone is uniformly random.",
    ),
    Kind.ADJOINTS: Words(
        "derivatives for boundary rows",
        "Derivatives of the loss for rows that crossed the boundary.",
        "They depend on the labels and inputs of whoever computed the loss, and can reveal both in part.",
        up="Derivatives of a silo's loss for aggregates that the server handed to it, one row for each target.",
        down="Derivatives of other silos' losses for the parts that this silo added to their aggregates.",
        handed_in="For every edge and layer the second share of a derivative, encrypted for the silo and passed on by "
        "its device with shares of zero among them; alone it is uniformly random.",
        between_devices="For every edge and layer the derivative of a neighbour's loss or, where rows are divided into "
        "shares, the first share of it, which alone is uniformly random.",
    ),
    Kind.PARTIALS: Words(
        "aggregates of rows of a few nodes",
        "Sums or extremes of rows that the model computed for neighbours of a node.",
        "An aggregate of one neighbour is that neighbour's row. From many aggregates over different neighbours single "
        "rows can be worked out. Attributes can be inferred from them.",
        up="For nodes of other silos, the sums or extremes of the rows that the model computed for a silo's own "
        "neighbours of them. The server sees whose part it is and for whom, not of which nodes.",
        down="For each of this silo's targets one row: the sum or extreme over its neighbours in all other silos, "
        "merged by the server, without saying whose they are.",
    ),
    Kind.METRICS: Words(
        "losses, scores and sizes of silos",
        "Losses and scores of a silo, its numbers of nodes and halo nodes, of targets of aggregates, where noise was "
        "added how often its rows and payloads left, and in a resumed run its checkpoints.",
        "Over few nodes they can reveal a single outcome.",
        down="Losses, scores, and numbers of nodes, halo nodes, targets of aggregates and releases of every silo.",
        handed_in="What each device adds to its silo's losses and scores; where it is masked, the silo reads sums over "
        "groups of devices alone.",
    ),
    Kind.SCORES: Words(
        "predictions and labels of single nodes or edges",
        "The prediction and the true label of every evaluated node or edge, one by one.",
        "These are individual records, labels included.",
    ),
    Kind.AGGREGATES: Words(
        "sums of raw node features",
        "Sums of the raw features of nodes and their neighbours, weighted by degrees.",
        "A sum over one neighbour is that neighbour's features, as they are: its weight is known or easily guessed. "
        "From sums over a few, and from what a silo knows itself, single nodes' features can be worked out.",
        peer="Sums of raw node features, weighted by degrees: what the sender's nodes add up to at one of this silo's "
        "nodes and, where two hops are summed, the whole sum of a node of the sender over itself and all its "
        "neighbours, also those in silos that share no edge with this one.",
    ),
    Kind.FEATURES: Words(
        "raw features of single nodes and edges",
        "The features of nodes and edges, as they are.",
        "These are individual records.",
    ),
    Kind.LABELS: Words(
        "labels of single nodes", "The true labels of nodes, one by one.", "These are individual records."
    ),
    Kind.EDGES: Words(
        "edges",
        "Which nodes are connected, by hashes of their ids, also inside a silo; degrees and ports, where the model "
        "reads them.",
        "This is the graph itself, as far as it was sampled.",
    ),
    Kind.LEDGER: Words(
        "counts of messages, from the silos' ledgers",
        "Lines of a silo's ledger, sent at the end of a run on several hosts: who sent how many messages, rows and "
        "bytes of which kind to whom, at which step and under which protection, without their contents.",
        "They tell which silos have edges with each other, and about how many.",
        down="Lines of the ledgers of others and of the server, sent at the end of a run on several hosts: of the "
        "messages that this silo has received, and of no others.",
    ),
    Kind.PROTOTYPES: Words(
        "means of groups of nodes' rows",
        "Means of the rows that a silo's own model computed for groups of its nodes, each over several nodes.",
        "A mean tells what its nodes have in common; a mean of one node would be that node's row. Attributes of nodes "
        "can be inferred from it, the better the smaller their group is.",
    ),
    Kind.GENERATED: Words(
        "generated rows of neighbours that nobody knows",
        "Rows that a silo's generator made for neighbours that its nodes may miss: features or embeddings of nodes "
        "that do not exist.",
        "They follow from features and neighbours of single nodes; a generator that has learnt much of its silo's "
        "nodes repeats them.",
    ),
    Kind.ROW_GRADIENTS: Words(
        "gradients for generated rows",
        "For every row that the receiver generated, the derivative of its squared distance to the nearest row of the "
        "sender's nodes.",
        "It is twice the difference of both rows, and the receiver knows one of them: it can work out the other, which "
        "are the features, or the embedding, of one of the sender's nodes, as they are.",
    ),
    Kind.SHARE_SUMS: Words(
        "sums of shares of neighbours' rows",
        "For a device, the sum of those shares of its neighbours' rows that it holds.",
        "By itself it is uniformly random; together with the sum of the other shares, which its silo holds, it opens "
        "the sum of the rows, which the silo reads and hands back. A sum over one neighbour is that neighbour's row.",
        down="For each of this silo's targets the sum of the first shares of all silos' parts, and for each part that "
        "this silo made the first share of the derivative of its sum.",
        peer="For each device of this silo the sum of those shares of its neighbours' rows that the sender holds.",
    ),
    Kind.NEIGHBOUR_SUMS: Words(
        "sums of neighbours' rows",
        "For a device, the sum of its neighbours' rows at a layer, or of their derivatives, as its silo opened it.",
        "A sum over one neighbour is that neighbour's row. Who is one of two neighbours can subtract its own.",
    ),
    Kind.KEYS: Words(
        "public keys of a secure sum",
        "Public keys, drawn anew for one sum, by which its clients agree on masks and seal letters to each other.",
        "They tell who takes part.",
        down="The public keys of all clients of a group.",
    ),
    Kind.KEY_SHARES: Words(
        "shares of secrets of a secure sum",
        "Shares of the secrets that masks are made of.",
        "One by one they tell nothing. As many as open a sum give one secret of a client; only both of its secrets "
        "would give its vector.",
        up="Shares of a client's secrets, each sealed for the client that keeps it; after the vectors, not sealed, one "
        "share of every client: of its own mask or, where it dropped out, of its mask key.",
        down="Shares of other clients' secrets, sealed for this one.",
    ),
    Kind.MASKED: Words(
        "vectors under masks that cancel in their sum",
        "Vectors of whole numbers under masks that look like random numbers and cancel in the sum over a group.",
        "One by one they tell nothing. The server learns their sum over each group, without noise: the fewer clients "
        "are in it, the more it tells of each.",
        down="The list of clients whose masked vectors arrived.",
    ),
}


RAW = (Kind.FEATURES, Kind.LABELS, Kind.EDGES)  # records as they are; where none crossed, one sentence says so


def never(kinds: Collection[str]) -> str:
    """The records that nobody received, in words, given the kinds that crossed; empty where raw features crossed.

    From sums of features, and from gradients for generated rows, single nodes' features can be worked out.
    """
    inside = "edge features and edges inside a silo"
    if Kind.FEATURES in kinds:
        return ""
    told = Kind.AGGREGATES in kinds or Kind.ROW_GRADIENTS in kinds
    return inside if told else f"node features, {inside}"
