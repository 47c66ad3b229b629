"""Who is let in, comes back, or is turned away, without processes: a grid whose nodes come and go."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from common.errors import FederationError
from common.protocol import FINISH, INITIALISE, UPDATE, pack, unpack
from common.settings import load_settings
from perdl_server.algorithm.server import PermaServer
from perdl_server.federation.members import Member, State
from perdl_server.federation.messages import Exchange, Question
from perdl_server.federation.rounds import Federation

SHARED = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6))).Q
SCALARS = {
    "n_features": 6,
    "n_samples": 9,
    "n_atoms": 6,
    "start_error": 0.1,
    "nonzeros": 1.0,
    "mean_share": 0.0,
    "largest_feature_share": 0.2,
    "shape": "6",
    "names": "",
}


class Node:
    """What a client would say; ``silent`` ones take messages and never answer."""

    def __init__(self, name, step=0, returning=False, silent=False, dictionary=SHARED, key="", names=""):
        self.name, self.step, self.returning, self.silent, self.dictionary = name, step, returning, silent, dictionary
        self.key, self.session, self.online, self.got = key, "1", True, []
        self.scalars = {**SCALARS, "names": names}

    def answer(self, message):
        kind = message.metadata.message_type
        if kind == INITIALISE and self.step:
            return pack({}, client=self.name, step=self.step)
        if kind == INITIALISE:
            arrays = {"dictionary": self.dictionary, "usage": np.ones(self.dictionary.shape[1])}
            return pack(arrays, client=self.name, step=0, returning=self.returning, **self.scalars)
        if kind == UPDATE:
            self.step = unpack(message.content).scalars["round"]
        return pack({}, client=self.name, error_before_update=0.1)


class TownGrid(Grid):
    """Nodes that a test brings in and takes away, also while the server waits."""

    def __init__(self, *nodes):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes = {10 + i: node for i, node in enumerate(nodes)}
        self.ids, self.answers, self.later = itertools.count(), {}, []

    def set_run(self, run): ...

    run = None

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return [number for number, node in self.nodes.items() if node.online]

    def get_nodes(self):
        for event in self.later[:1]:
            event()
            self.later.pop(0)
        return [
            NodeInfo(node_id=number, last_activated_at=node.session, name=node.key)
            for number, node in self.nodes.items()
            if node.online
        ]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append(f"m{next(self.ids)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            node = self.nodes[message.metadata.dst_node_id]
            if not node.online:
                answer = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
            else:
                node.got.append(message)
                if node.silent:
                    continue
                answer = Message(node.answer(message), reply_to=message)
            answer.metadata.__dict__["_message_id"] = f"a{ids[-1]}"
            self.answers[ids[-1]] = answer
        return ids

    def pull_messages(self, message_ids):
        return [self.answers.pop(i) for i in list(message_ids) if i in self.answers]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def federation(grid, *overrides, members=(), **more):
    settings = load_settings(None, ["join_timeout=4", "round_timeout=3", *overrides])
    server = PermaServer(settings, more.get("D_g"))
    return Federation(settings, Exchange(grid, lambda: False), "f00d", server, members)


def names(answers):
    return [member.name for member, _ in answers]


def ask(one, t=1):
    arrays = {"global_dictionary": SHARED[:, :3]}
    return one.ask(Question(UPDATE, f"round {t}", lambda payload, name: None, arrays, {"round": t}))


def reasons(node):
    return [unpack(m.content).scalars.get("reason") for m in node.got if m.metadata.message_type == FINISH]


def joined(grid, *overrides):
    one = federation(grid, *overrides)
    one.join()
    one.server.global_dictionary = SHARED[:, :3]
    return one


def test_members_are_in_the_order_of_their_names():
    one = joined(TownGrid(Node("client-10"), Node("b"), Node("client-9")), "n_clients=3")
    assert [member.name for member in one.members] == ["b", "client-9", "client-10"]


def test_a_key_is_a_client_and_others_do_not_end_the_wait():
    grid = TownGrid(Node("ada", key="ada"), Node("ada", key="eve"))
    grid.later = [lambda: None, lambda: grid.nodes.update({12: Node("bob", key="bob")})]
    one = joined(grid, "n_clients=2")
    assert [member.name for member in one.members] == ["ada", "bob"]
    assert reasons(grid.nodes[11]) == ["its key is that of eve, but it calls itself ada: start it with its own name"]
    assert not reasons(grid.nodes[10])


def test_a_process_that_was_started_again_is_asked_again_in_the_same_round():
    silent = Node("a", silent=True)
    grid = TownGrid(silent, Node("b"))
    silent.silent = False
    one = joined(grid, "n_clients=2")
    silent.silent = True  # it was killed, with the message that it had taken

    def restarted():
        silent.silent, silent.session, silent.step, silent.returning = False, "2", 4, True

    grid.later = [lambda: None, restarted]
    assert names(ask(one, 5)) == ["a", "b"]
    assert one.members[0].facts["returns"] == 1


def test_one_that_comes_back_on_another_node_takes_its_place():
    grid = TownGrid(Node("a"), Node("b"))
    one = joined(grid, "n_clients=2")
    grid.nodes[10].silent = True
    grid.later = [lambda: None, lambda: grid.nodes.update({12: Node("a", step=1, returning=True)})]
    assert names(ask(one, 2)) == ["a", "b"]
    assert one.members[0].node == 12


def test_one_that_has_gone_is_waited_for_only_if_it_is_needed(caplog):
    grid = TownGrid(Node("a"), Node("b"), Node("c"))
    one = joined(grid, "n_clients=3", "quorum=2", "join_timeout=2")
    grid.nodes[10].online = False
    assert names(ask(one)) == ["b", "c"]
    assert one.members.away == ["a"]
    assert "waiting for" not in caplog.text
    grid.nodes[11].online = False
    with pytest.raises(FederationError, match=r"round 2: 1 of 3 .*\(quorum 2\): a, b: gone"):
        ask(one, 2)
    assert caplog.text.count("round 2: waiting for a, b to come back, for 2 s") == 1

    def back():
        grid.nodes[10] = Node("a", step=1, returning=True)
        grid.nodes[10].session = "2"

    grid.later = [lambda: None, back]
    assert names(ask(one, 3)) == ["a", "c"]


def test_another_client_of_a_members_name_is_turned_away():
    grid = TownGrid(Node("a"), Node("b"))
    one = joined(grid, "n_clients=2", "round_timeout=1")
    grid.nodes[10].silent = True
    grid.nodes[12] = Node("a")
    one.admission._next_look = 0.0
    with pytest.raises(FederationError, match="a: no answer within 1 s"):
        ask(one)
    assert "a takes part already" in reasons(grid.nodes[12])[0]
    assert one.members[0].node == 10


def test_who_lost_its_folder_is_aligned_anew_once_its_former_process_is_gone():
    grid = TownGrid(Node("a"), Node("b"))
    one = joined(grid, "n_clients=2")
    ask(one)
    turned = SHARED[:, [3, 2, 0, 4, 1, 5]] * [1, -1, 1, 1, 1, 1]
    grid.nodes[10].online = False
    grid.nodes[12] = Node("a", dictionary=turned)
    one.admission._next_look = 0.0
    assert names(ask(one, 2)) == ["a", "b"]
    sent = unpack(grid.nodes[12].got[-1].content).arrays
    assert sent["indices"].tolist() == [2, 4, 1]
    assert one.members[0].indices is None  # it has answered


def test_who_answered_and_then_lost_its_folder_is_aligned_anew_for_the_next_round():
    grid = TownGrid(Node("a"), Node("b"))
    one = joined(grid, "n_clients=2")
    slow = grid.nodes[11]
    slow.silent = True

    def a_is_started_again():
        grid.nodes[10].online = False
        grid.nodes[12] = Node("a")

    def b_answers():
        slow.silent = False
        question = slow.got[-1]
        answer = Message(slow.answer(question), reply_to=question)
        answer.metadata.__dict__["_message_id"] = "late"
        grid.answers[question.metadata.message_id] = answer

    grid.later = [lambda: None, a_is_started_again, b_answers]
    assert names(ask(one)) == ["a", "b"]
    assert [m.metadata.message_type for m in grid.nodes[12].got] == [INITIALISE]  # its answer counts: not asked again
    assert names(ask(one, 2)) == ["a", "b"]
    assert unpack(grid.nodes[12].got[-1].content).arrays["indices"].tolist() == [0, 1, 2]


def test_each_client_is_told_its_own_fault_alone_when_the_run_ends_early():
    grid = TownGrid(Node("a"), Node("b"), Node("c"))
    one = joined(grid, "n_clients=3", "round_timeout=0.3", "join_timeout=0.3")
    grid.nodes[10].silent = True
    with pytest.raises(FederationError):
        ask(one)
    assert [member.state for member in one.members] == [State.ASKED, State.ANSWERED, State.ANSWERED]
    grid.nodes[10].silent = False
    one.dismiss({}, "over")
    assert [reasons(grid.nodes[i]) for i in (10, 11, 12)] == [["no answer within 0.3 s"], ["over"], ["over"]]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (
            Node("c"),
            "c is one too many: the run has its 2 clients; a server with a larger n_clients and a quorum lets in more",
        ),
        (Node("c", step=3, returning=True), "this run knows no c"),
    ],
    ids=["one too many", "of another run"],
)
def test_who_has_no_place_is_told_at_once(node, why):
    grid = TownGrid(Node("a"), Node("b"))
    one = joined(grid, "n_clients=2", "round_timeout=1")
    grid.nodes[12] = node
    one.admission._next_look = 0.0
    grid.nodes[10].silent = True
    with pytest.raises(FederationError):
        ask(one)
    assert reasons(node) == [why]
    grid.nodes[10].silent = False
    one.dismiss({}, "over")
    assert reasons(node) == [why]


def test_who_comes_late_and_does_not_fit_is_told_so():
    grid = TownGrid(Node("a"), Node("b"))
    one = joined(grid, "n_clients=4", "quorum=2", "join_timeout=0.3")
    grid.nodes[12] = Node("wide", dictionary=np.eye(7)[:, :6])
    grid.nodes[13] = Node("few", dictionary=SHARED[:, :2])
    one.admission._next_look = 0.0
    assert names(ask(one)) == ["a", "b", "few"]
    assert "wide has 7 features, the run has 6" in reasons(grid.nodes[12])[0]
    assert unpack(grid.nodes[13].got[-1].content).arrays["indices"].tolist() == [0, 1, -1]  # the third it has not


def test_who_calls_its_features_otherwise_than_most_is_left_out_early_or_late():
    nodes = Node("a", names="x"), Node("b"), Node("c", names="y"), Node("d", names="x")
    grid = TownGrid(*nodes)
    one = joined(grid, "n_clients=5", "quorum=3", "join_timeout=0.3")
    assert names(ask(one)) == ["a", "b", "d"]  # no names are as good as any
    assert "c's features have other names or another order than a's" in reasons(nodes[2])[0]
    grid.nodes |= {21: Node("late", names="y"), 22: Node("welcome", names="x")}
    one.admission._next_look = 0.0
    assert names(ask(one)) == ["a", "b", "d", "welcome"]
    assert "late's features have other names" in reasons(grid.nodes[21])[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_samples": -5},
        {"n_atoms": 0},
        {"nonzeros": -1e300},
        {"nonzeros": 6.1},
        {"mean_share": 1e308},
        {"largest_feature_share": -0.1},
    ],
    ids=str,
)
def test_who_tells_of_itself_what_cannot_be_is_left_out(wrong):
    liar = Node("b")
    liar.scalars |= wrong
    one = joined(TownGrid(Node("a"), liar), "n_clients=2", "quorum=1", "join_timeout=0.3")
    assert names(ask(one)) == ["a"]
    assert f"{next(iter(wrong))} = " in reasons(liar)[0]


def test_who_says_it_answered_a_round_before_the_first_is_left_out():
    liar = Node("b", step=-3)
    one = joined(TownGrid(Node("a"), liar), "n_clients=2", "quorum=1", "join_timeout=0.3")
    assert names(ask(one)) == ["a"]
    assert "step = -3 cannot be" in reasons(liar)[0]


@pytest.mark.parametrize("text", ["7", "2x2", "-2x-3", "6x", "x" * 1000, "1e9", "6.0", "٦"])
def test_a_shape_that_is_not_of_the_features_is_none(text):
    odd = Node("a")
    odd.scalars["shape"] = text
    one = joined(TownGrid(odd), "n_clients=1")
    assert one.members[0].facts["shape"] == ""


def test_a_resumed_run_waits_for_its_members_and_says_who_is_missing():
    members = [Member(name, {}, state=State.AWAY) for name in "abc"]
    grid = TownGrid(Node("a", step=7, returning=True))
    grid.later = [lambda: None, lambda: grid.nodes.update({11: Node("c", step=6, returning=True)})]
    one = federation(grid, "n_clients=3", "quorum=2", "join_timeout=2", members=members, D_g=SHARED[:, :3])
    one.rejoin()
    assert one.members.away == ["b"]
    assert names(ask(one, 8)) == ["a", "c"]
    lonely = federation(
        TownGrid(), "n_clients=3", "join_timeout=0.2", members=[Member("a", {}, state=State.AWAY)], D_g=SHARED[:, :3]
    )
    with pytest.raises(
        FederationError, match=r"0 of 1 clients came back within 0.2 s \(quorum 3\), without a: start them"
    ):
        lonely.rejoin()
    lonely.patience = 0.1
    lonely.rejoin()  # all rounds are done: nothing depends on them


def test_in_a_new_run_nobody_has_answered_a_round_and_nobody_sends_nothing():
    nothing = Node("c", dictionary=np.empty((6, 0)))  # without a guard a client uses an atom, or says why not
    grid = TownGrid(Node("a"), Node("b"), nothing, Node("d", step=5))
    one = joined(grid, "n_clients=4", "quorum=2", "join_timeout=0.3", "n_global=auto", "privacy=none")
    assert [member.name for member in one.members] == ["a", "b"]
    assert reasons(nothing) == ["c sent no atoms"]
    assert reasons(grid.nodes[13]) == ["this run knows no d"]


def test_who_was_refused_may_mend_it_and_come_again_with_the_same_key():
    grid = TownGrid(Node("a"), Node("b"), Node("c", dictionary=np.eye(7)[:, :6]))
    one = joined(grid, "n_clients=3", "quorum=2", "join_timeout=0.3", "round_timeout=1")
    assert "c has 7 features, a has 6" in reasons(grid.nodes[12])[0]
    again = grid.nodes[12] = Node("c", silent=True)  # it is at work on its first dictionary
    again.session, one.admission._next_look = "2", 0.0
    ask(one)
    assert not reasons(again)
    again.silent, again.session, one.admission._next_look = False, "3", 0.0
    assert "c" in {*names(ask(one, 2)), *names(ask(one, 3))}


def test_a_fault_of_the_process_before_does_not_count_against_the_one_in_its_place():
    former = Node("a")
    grid = TownGrid(former, Node("b"))
    one = joined(grid, "n_clients=2")
    former.silent = True  # it announced an answer and was killed before it had sent it
    later = Node("a", step=1, returning=True)
    later.session = "2"

    def in_its_place():
        grid.nodes[10] = later

    def flower_gives_up():
        question = next(m for m in former.got if m.metadata.message_type == UPDATE)
        answer = Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "lost"), reply_to=question)
        answer.metadata.__dict__["_message_id"] = "lost"
        grid.answers[question.metadata.message_id] = answer

    def it_is_done():
        question = next(m for m in later.got if m.metadata.message_type == UPDATE)
        answer = Message(later.answer(question), reply_to=question)
        answer.metadata.__dict__["_message_id"] = "done"
        grid.answers[question.metadata.message_id] = answer

    def says_hello(message):
        later.answer, later.silent = type(later).answer.__get__(later), True  # then it is at work
        return later.answer(message)

    later.answer = says_hello
    grid.later = [lambda: None, in_its_place, flower_gives_up, it_is_done]
    assert names(ask(one, 2)) == ["a", "b"]


def test_a_new_process_that_gets_an_old_question_is_heard_before_it_is_left_out():
    former = Node("a")
    grid = TownGrid(former, Node("b"))
    one = joined(grid, "n_clients=2")
    former.silent = True  # it was killed; Flower keeps its message for whoever has its key
    later = Node("a", silent=True)  # and lost its folder
    later.session = "2"

    def send(question, answer):
        answer.metadata.__dict__["_message_id"] = f"answer to {question.metadata.message_id}"
        grid.answers[question.metadata.message_id] = answer

    def it_reads_the_old_question(ids, pull=grid.pull_messages):
        grid.nodes[10], grid.pull_messages = later, pull
        question = former.got[-1]
        send(question, Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no state"), reply_to=question))
        return pull(ids)

    def it_has_a_first_dictionary():
        later.silent = False
        question = later.got[-1]
        send(question, Message(later.answer(question), reply_to=question))

    grid.pull_messages = it_reads_the_old_question
    grid.later = [lambda: None, it_has_a_first_dictionary]
    assert names(ask(one, 2)) == ["a", "b"]
    assert unpack(later.got[-1].content).arrays["indices"].tolist() == [0, 1, 2]
