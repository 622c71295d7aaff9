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
    with fleet() as ring:
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
        stranger.forget_run()
        config.write_text(model)
        ring.start()
