"""A machine with a third of the others' computing power, and what the methods make of it."""

SHARE = 0.3
FAST = 0.5  # of its part of the machine for each of the others, so that it is the limit that binds and not who else computes


def test_slow_machine_does_fewer_steps_by_a_edit(fleet):
    with fleet(method="a-edit", settings="[sync]\nperiod = 1") as ring:
        ring.start()
        *fast, slow = ring.nodes
        for node in fast:
            node.limit_cpu(FAST)
        slow.limit_cpu(FAST * SHARE)
        ring.wait_for_rounds(8)
        records = ring.nodes[0].rounds(5)
        steps = [sum(node.member_in(record)["steps"] for record in records) for node in ring.nodes]
        assert 0 < steps[3] < 0.6 * min(steps[:3]), steps
        assert all(slow.member_in(record)["verdicts"]["late"] == 0 for record in records)


def test_slow_machine_is_late_with_a_grace(fleet):
    with fleet(settings="[straggler]\ngrace = 1.5") as ring:
        ring.start()
        slow = ring.nodes[3]
        slow.limit_cpu(SHARE)
        ring.wait_for_rounds(20)
        records = ring.nodes[0].rounds(15)
        late = [[node.member_in(record)["verdicts"]["late"] > 0 for record in records].count(True) for node in ring.nodes]
        assert late[3] >= 5 and late[3] > 3 * max(late[:3]), late
        # It is late, and still heard now and then.
        assert late[3] < len(records)
