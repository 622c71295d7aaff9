"""Methods on real daemons: presets that change on a running ring, and rounds by time."""


def test_rounds_without_overlap_give_the_same_bits_and_hide_nothing(ring):
    hashes = []
    for overlap in ("none", "forward"):
        r = ring(2)
        for node in r.nodes:
            node.configure(ring=f"overlap = {overlap}")
        r.start()
        r.start_workers("--steps", 30, "--layers", 8)
        r.wait_until_finished()
        hashes.append(r.check_hashes())
    assert hashes[0] == hashes[1]


def test_method_changes_on_a_running_ring_without_losing_a_step(ring):
    r = ring(3)
    r.start()
    r.start_workers("--steps", 300, "--step-ms", 2)
    r.nodes[0].wait_for_round(2)
    r.nodes[1].ctl("set", "method", "local-sgd", "--wait", "--timeout", "20")
    told = [{s["name"]: (s["value"], s["since_round"]) for s in node.ctl("get")["settings"] if s["scope"] == "ring"}
            for node in r.nodes]
    assert told[0] == told[1] == told[2]
    since = told[0]["method"][1]
    assert since > 0
    for name, value in (("method", "local-sgd"), ("sync.overlap", "none"), ("outer.lr", "1"), ("outer.momentum", "0"),
                        ("penalty.threshold", "1e+30"), ("penalty.temperature", "1e+30"), ("penalty.clip", "1e+30")):
        assert told[0][name] == (value, since), name
    assert told[0]["sync.interval"] == ("5", 0)
    r.nodes[0].wait_for_round(since + 2)
    weights = [layer["weight"] for peer in r.nodes[0].ctl("penalties")["peers"] for layer in peer["layers"]]
    assert all(abs(weight - 1 / 3) < 1e-12 for weight in weights)
    r.wait_until_finished()
    r.check_hashes()
    assert [node.status()["step"] for node in r.nodes] == [300, 300, 300]
    assert [node.status()["round"] for node in r.nodes] == [60, 60, 60]


def test_rounds_by_time_let_each_member_take_steps_at_its_own_pace(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="period = 0.5\nmin_steps = 2\n[penalty]\nby_steps = yes\ntemperature = 1e30")
    r.start()
    r.nodes[0].start_worker("--steps", 100000, "--step-ms", 2)
    r.nodes[1].start_worker("--steps", 100000, "--step-ms", 30)
    r.nodes[0].wait_for_round(4)
    for node in r.nodes:
        penalties = node.ctl("penalties")
        steps = {peer["name"]: peer["steps"] for peer in penalties["peers"]}
        weights = {peer["name"]: peer["layers"][0]["weight"] for peer in penalties["peers"]}
        assert steps["a"] > 4 * steps["b"] >= 8, steps
        assert abs(weights["a"] - steps["a"] / (steps["a"] + steps["b"])) < 1e-9
    before = r.nodes[0].status()
    r.nodes[1].ctl("set", "sync.period", "0", "--wait", "--timeout", "20")
    r.nodes[1].ctl("wait", "round", before["round"] + 4, "--timeout", "20")
    assert [peer["steps"] for peer in r.nodes[0].ctl("penalties")["peers"]] == [5, 5]
    r.check_hashes()
