"""Other rings than one of four: a mesh, eight nodes, and members that do not belong together."""

import json

from node import SLOW_MACHINE, wait_until


def test_mesh_of_two_by_two_trains(fleet):
    with fleet(shards=2) as mesh:
        mesh.start()
        sizes = [{layer["name"]: layer["size"] for layer in json.loads(node.run("editctl", "trace", "--last=1").splitlines()[0])["layers"]}
                 for node in mesh.nodes]
        assert all(sizes[0].values()) and sizes[0].keys() == sizes[1].keys()
        assert [(node.status()["row"], node.status()["column"]) for node in mesh.nodes] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_eight_nodes_in_a_ring_of_rings(fleet):
    with fleet(8, settings="[ring]\nfanout = 4") as ring:
        ring.start()
        assert [peer["name"] for peer in ring.nodes[5].ctl("peers")["peers"]] == [node.name for node in ring.nodes]


def test_other_model_is_refused_by_name(fleet):
    refusals = [r"hello refused \(a fact differs: intermediate_size", r"refused by peer n\d \(a fact differs: intermediate_size"]
    with fleet(errors=refusals) as ring:
        stranger = ring.nodes[2]
        config = stranger.file("/srv/editd/model/config.json")
        model = config.read_text()
        config.write_text(json.dumps(json.loads(model) | {"intermediate_size": 96}))
        for node in ring.nodes:
            node.start()
        for node in (ring.nodes[1], stranger):
            node.wait_for_line(r"a fact differs: intermediate_size, there \d+, here \d+")
            wait_until(lambda n=node: not n.status()["healthy"], SLOW_MACHINE, node.status)
        assert ring.round() == 0 and all(node.status()["phase"] == "gathering" for node in ring.nodes)
        stranger.stop()
        stranger.begin_anew()
        config.write_text(model)
        ring.start()


def test_mesh_that_loses_a_row_waits_for_it_and_all_go_back_to_a_checkpoint(fleet):
    with fleet(shards=2, errors=["the worker is gone, and a mesh cannot go on without it"]) as mesh:
        mesh.start()
        mesh.nodes[0].ctl("checkpoint", "--wait", "--timeout", SLOW_MACHINE)
        row = mesh.nodes[2:]
        for node in row:
            node.power_off()
        for node, below in zip(mesh.nodes[:2], row):
            wait_until(lambda n=node, b=below: f"{b.name} is not heard" in n.status()["advice"], SLOW_MACHINE, node.status)
        stood = mesh.round(mesh.nodes[:2])
        for node in row:
            node.power_on()
        # What was in the memory of a row is nowhere else.
        for node in mesh.nodes:
            node.stop()
            node.forget_run()
        mesh.start()
        mesh.wait_for_round(stood + 5)
