# One non-recursive Makefile. Everything built lands in build/; sanitizer and clang variants in folders of their own there.
#
#   make           the five products              make check    all tests (SAN=address,undefined: with sanitizers)
#   make tidy      the laws of the tree           make bench    measurements against a peer in the same run
#   make fuzz      libFuzzer on the codec         make demo     NODES=4 STEPS=400, MESH=2x2: nodes train on real text
#   make mutants   proof of the simulator           make check-containers   several machines with systemd, as containers (root)
#   make robustness  what faults cost real rings: docs/robustness.md
#   make install   DESTDIR=, PREFIX=, SYSCONFDIR=   V=1         show commands (WERROR=: go on after warnings)

VERSION    := 0.1.0
PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
NODES      ?= 4
MESH       ?=
STEPS      ?= 400
SAN        ?=
WERROR     ?= -Werror

comma := ,
B     := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))$(if $(findstring clang,$(CC)),/clang)
Q     := $(if $(V),,@)
say    = $(if $(V),@:,@printf '  %-6s %s\n' $(1) $(2))

OPT      ?= -O2 -g
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef $(WERROR)
# Seconds that a test may take (tests/run): sanitizers take their time.
export LIMIT ?= $(if $(SAN),1800,1200)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
COMPILE   = $(CC) -std=c17 -D_GNU_SOURCE -DEDIT_VERSION='"$(VERSION)"' $(OPT) -fPIC -fvisibility=hidden -ffp-contract=off \
            -fno-math-errno $(WARN) -I. -I$(B) $(SANFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP
LINK      = $(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^

# ---- Objects by folder, in reading order -----------------------------------------------------------------------------

# core/ in the order of the include law: a file includes only what stands before it. PLAIN: headers without a .c.
PLAIN  := base option event layer width node_config
CORE   := vec penalty outer ring link view places roster vote decree seating councillor proposer council circle row collective proposal sync part heal plan standing \
          round node_rings node node_look
PROTO  := check text inifile keyfile stream mapping address setting description bell segment safetensors peer.pb-c control.pb-c codec_arena codec_views codec \
          control_codec
DAEMON := log members config votefile keyring lock notify gate zap handshake socket dealer contact guests reception transport worker_port state difference facts fields \
          folder run snapshot manifest checkpoint restore consent recovery membership changes rounds history \
          driver driver_nodes handover health heard advice answer answer_look answer_members answer_mesh answer_view answer_trace control entry daemon
LIBW   := edit_worker edit_worker_gradient edit_worker_mesh edit_worker_link
MODEL  := kernels kernels_rows draw llama_layout llama attention llama_forward llama_backward llama_init adamw
TOOLS  := complain inputfile llama_config tensorfile tensorfolder llama_weights corpus say cmdline threads meter drill origin eval piece \
          join sample train_options member train
SIM    := heap parcel trainee formula share ledger ledger_views ballot trace setup citizen stage mishap remains oracle world \
          scenario pool tuition learner report machine cluster plot study recording rehearsal rehearse
CTL    := unit table json remote client arguments verb request session usage render render_status render_members render_mesh render_view render_layers look recount \
          steer leave wait keygen
# Tests in cmocka, by area.
TESTS  := test_vec test_penalty test_outer test_ring test_link test_view test_council test_council_return test_council_input test_council_seeds test_row test_collective test_mesh \
          test_node test_node_trouble test_node_views test_node_enter test_node_survivors test_heal test_part \
          test_part_gradients test_sim test_tuition test_text test_setting test_description test_segment test_codec test_codec_bad test_codec_views \
          test_control_codec test_fuzz_corpus test_edit_worker test_edit_worker_death test_edit_worker_gradients test_safetensors \
          test_tensorfile test_corpus test_llama_config test_drill test_threads test_kernels test_llama test_llama_use \
          test_config test_keyfile test_keyring test_transport test_transport_views test_contact \
          test_changes test_lock test_history test_state test_consent test_restore \
          test_checkpoint test_checkpoint_death test_votefile test_ctl test_ctl_render test_ctl_view
# What several tests share: linked into each that uses it.
HELPERS := near assembly convene lab crew tiny scratch traced loopback company page codecs worker_end worker_drive fuzz/target fuzz/target_files \
           reference_edit reference_llama owned_model owned_run vec_narrow kernels_narrow outer_narrow
# Programs that the tests of whole systems start.
PROBES := probe_worker probe_frames
# Tests that are programs as they stand: tests/NAME; BUILD tells them where the binaries are.
SCRIPTS := test_worker_tools.py test_join.py test_training.py test_edit_sim.py test_edit_sim_run.py test_experiments.py test_edit_sim_rehearse.py \
           test_library.py test_views.py test_tidy.py test_verdict.py test_bootstrap.py test_install.py test_system.py test_demo.py test_real.py

DAEMON_LIBS := -lzmq -lprotobuf-c -linih -ljansson -lxxhash -lsystemd -lm
WORKER_LIBS := -lopenblas -ljansson -lxxhash -lm -pthread
CTL_LIBS    := -lzmq -lprotobuf-c -ljansson -linih -lm
SIM_LIBS    := -linih $(WORKER_LIBS)
TEST_LIBS   := -lcmocka $(DAEMON_LIBS) $(WORKER_LIBS)

objects = $(patsubst %,$(B)/$(1)/%.o,$(2))
PRODUCTS := $(addprefix $(B)/,editd edit-worker editctl edit-sim libedit-worker.so)

.PHONY: FORCE all check checks check-containers tidy objects mutants bench robustness fuzz corpus experiments experiments-full demo install clean
.SECONDARY:
.DELETE_ON_ERROR:
all: $(PRODUCTS)
FORCE:

# ---- Products --------------------------------------------------------------------------------------------------------

# Each folder is an archive; a program takes from it what it uses. main.o is never inside.
$(B)/core.a:   $(call objects,core,$(CORE))
$(B)/proto.a:  $(call objects,proto,$(PROTO))
$(B)/daemon.a: $(call objects,daemon,$(DAEMON))
$(B)/worker.a: $(call objects,worker,$(LIBW) $(MODEL) $(TOOLS))
$(B)/ctl.a:    $(call objects,ctl,$(CTL))
$(B)/sim.a:    $(call objects,sim,$(SIM))
$(B)/tests.a:  $(call objects,tests,$(HELPERS))
$(B)/%.a: Makefile
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

$(B)/editd: $(B)/daemon/main.o $(B)/daemon.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(DAEMON_LIBS)
$(B)/edit-worker: $(B)/worker/main.o $(B)/worker.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(WORKER_LIBS)
$(B)/editctl: $(B)/ctl/main.o $(B)/ctl.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(CTL_LIBS)
$(B)/edit-sim: $(B)/sim/main.o $(B)/sim.a $(B)/worker.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(SIM_LIBS)
$(B)/libedit-worker.so: $(call objects,worker,$(LIBW)) $(B)/proto.a
	$(call say,LINK,$@)
	$(Q)$(LINK) -shared -Wl,-soname,libedit-worker.so.0 -Wl,--exclude-libs,ALL -Wl,-z,defs -lxxhash

# ---- Compiling -------------------------------------------------------------------------------------------------------

# Generated headers must be there before anything compiles.
$(B)/%.o: %.c | $(B)/proto/peer.pb-c.h $(B)/proto/control.pb-c.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<
# Its loops are what the compiler is to make vector code of.
$(B)/worker/kernels_rows.o: OPT := $(subst -O2,-O3,$(OPT))
$(B)/proto/%.pb-c.c $(B)/proto/%.pb-c.h &: proto/%.proto
	$(call say,PROTO,$<)
	@mkdir -p $(@D)
	$(Q)protoc-c --c_out=$(B) $<
$(B)/proto/%.pb-c.o: $(B)/proto/%.pb-c.c
	$(call say,CC,$<)
	$(Q)$(COMPILE) -Wno-conversion -c -o $@ $<

# ---- Tests -----------------------------------------------------------------------------------------------------------

$(B)/tests/%: $(B)/tests/%.o $(B)/tests.a $(B)/daemon.a $(B)/worker.a $(B)/ctl.a $(B)/sim.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(TEST_LIBS)

$(addprefix $(B)/tests/,$(PROBES)): $(B)/tests/%: $(B)/tests/%.o $(B)/worker.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) -lzmq -lprotobuf-c $(WORKER_LIBS)
run/test_system.py run/test_real.py: $(addprefix $(B)/tests/,$(PROBES))

# One line per test, its output only if it fails, and one line at the end; make -j runs them side by side.
CHECKED := $(TESTS) $(SCRIPTS) $(if $(SAN)$(findstring clang,$(CC)),,tidy)
check:
	@begin=$$(date +%s); rm -f $(CHECKED:%=$(B)/tests/%.passed); \
	$(MAKE) --no-print-directory -k checks; tests/verdict $$? $$begin $(B)/tests $(CHECKED)
checks: all $(patsubst run/tidy,tidy,$(addprefix run/,$(CHECKED)))
.PHONY: $(addprefix run/,$(TESTS) $(SCRIPTS))
$(addprefix run/,$(TESTS)): run/%: $(B)/tests/%
	@BUILD=$(B) SANFLAGS="$(SANFLAGS)" tests/run $* $(B)/tests/$*.log $<
$(addprefix run/,$(SCRIPTS)): run/%: tests/% | all
	@BUILD=$(B) SANFLAGS="$(SANFLAGS)" tests/run $* $(B)/tests/$*.log $<

# Scenarios on several machines, one line each; SCENARIO='partition or power' runs those whose names match.
SCENARIO ?=
check-containers: all $(B)/tests/containers/netdelay
	@BUILD=$(B) tests/test_containers.py $(if $(SCENARIO),-k '$(SCENARIO)')
$(B)/tests/containers/netdelay: $(B)/tests/containers/netdelay.o
	$(call say,LINK,$@)
	$(Q)$(LINK) -lnetfilter_queue -lnfnetlink

# The laws of the tree on the files and on plain objects of the core; then clang's opinion of every file, without linking.
tidy: $(B)/core.a
	$(call say,TIDY,tests/tidy.py)
	@python3 tests/tidy.py --core $(B)/core.a .
	@$(MAKE) --no-print-directory CC=clang OPT=-O0 B=build/clang-warnings objects
	@mkdir -p $(B)/tests && echo 0 >$(B)/tests/tidy.passed
objects: $(call objects,core,$(CORE)) $(call objects,proto,$(PROTO)) $(call objects,daemon,main $(DAEMON)) \
	 $(call objects,worker,main $(LIBW) $(MODEL) $(TOOLS)) $(call objects,sim,main $(SIM)) $(call objects,ctl,main $(CTL)) \
	 $(call objects,tests,$(TESTS) $(HELPERS) $(PROBES) containers/netdelay)

# Proves the simulator: faults planted in a copy of the core, each of which it must find.
mutants:
	@tests/mutants.sh

# ---- Fuzzing ---------------------------------------------------------------------------------------------------------

# Every kind of input from outside has a target in tests/fuzz/target.h; `make check` replays tests/fuzz/corpus through them. What
# the fuzzer finds interesting lands in build/fuzz/found, what fails in build/fuzz/TARGET-crash-...: copy that into the corpus.
FUZZ         := codec control description segment weights config tokens manifest snapshot
FUZZ_SECONDS ?= 60
FUZZ_OBJECTS := $(patsubst %,build/fuzz/%.o,tests/fuzz/target tests/fuzz/target_files worker/complain worker/inputfile \
                  worker/tensorfile worker/llama_config worker/corpus core/places core/vec core/penalty core/roster core/vote daemon/members daemon/config \
                  daemon/fields daemon/manifest daemon/snapshot)
FUZZ_FLAGS   := -fno-sanitize-recover=all -fno-omit-frame-pointer -fsanitize=address,undefined

fuzz: $(addprefix fuzz/,$(FUZZ))
.PHONY: $(addprefix fuzz/,$(FUZZ))
$(addprefix fuzz/,$(FUZZ)): fuzz/%: build/fuzz/fuzz_%
	@mkdir -p build/fuzz/found/$*
	@LIMIT=$$(($(FUZZ_SECONDS) + 60)) tests/run fuzz_$* build/fuzz/$*.log $< -max_total_time=$(FUZZ_SECONDS) -max_len=65536 \
		-timeout=5 -rss_limit_mb=1024 -artifact_prefix=build/fuzz/$*- build/fuzz/found/$* tests/fuzz/corpus/$*
	@sed -n 's/^Done \([0-9]*\) runs.*/         \1 inputs/p' build/fuzz/$*.log
build/fuzz/fuzz_%: build/fuzz/library tests/fuzz/fuzz.c
	$(call say,LINK,$@)
	$(Q)clang -std=c17 -I. $(FUZZ_FLAGS),fuzzer -DTARGET=target_$* -o $@ tests/fuzz/fuzz.c $(FUZZ_OBJECTS) build/fuzz/proto.a \
		-lprotobuf-c -linih -ljansson -lxxhash -lm
build/fuzz/library: FORCE
	@$(MAKE) --no-print-directory CC=clang B=build/fuzz SANFLAGS="$(FUZZ_FLAGS),fuzzer-no-link" build/fuzz/proto.a \
		$(FUZZ_OBJECTS)

# Writes the good and the crafted files of the corpus anew, after a change of a format.
corpus: $(B)/tests/fuzz/corpus
	$(Q)$< tests/fuzz/corpus

# ---- Benches ---------------------------------------------------------------------------------------------------------

# Each is a program in bench/ and a script of the same first name that runs it beside a peer.
BENCHES := worker_bench
$(B)/bench/%: $(B)/bench/%.o $(call objects,worker,$(MODEL)) $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(WORKER_LIBS)
bench: all $(addprefix $(B)/bench/,$(BENCHES))
	@bench/worker.py --program $(B)/bench/worker_bench
	@bench/overlap.py --build $(B)
	@bench/rings.py --build $(B)
	@bench/mesh.py gather --repeats 1 --build $(B)
	$(if $(AGAINST),@bench/plain.py --build $(B) --against $(AGAINST))

# Takes about half an hour. SOAK=SECONDS: only faults for so long, and the slope of memory and descriptors.
robustness: all $(B)/tests/probe_worker
	@bench/robustness.py $(if $(SOAK),--soak $(SOAK)) --build $(B) --json $(B)/robustness$(if $(SOAK),-soak).json

# ---- Experiments: docs/experiments.md --------------------------------------------------------------------------------

experiments: all $(B)/tests/probe_worker
	@if [ "$$(id -u)" = 0 ]; then experiments/real.py E6 --build $(B) --out $(B)/experiments; \
	 else echo "E6 sets up networks: run experiments/real.py E6 as root"; fi
	@experiments/virtual.py --build $(B) --out $(B)/experiments
experiments-full: $(B)/edit-sim
	@experiments/virtual.py --size full --build $(B) --out $(B)/experiments

# ---- The demonstration -----------------------------------------------------------------------------------------------

demo: $(addprefix $(B)/,editd edit-worker editctl)
	@python3 tests/demo.py $(if $(MESH),--mesh '$(MESH)',--nodes $(NODES)) --steps $(STEPS) --build $(B) --out $(B)/demo

# ---- Installing ------------------------------------------------------------------------------------------------------

# One text, two units: NAME.service and, for several nodes on one host, NAME@.service.
fill = sed 's|@PREFIX@|$(PREFIX)|g; s|@SYSCONFDIR@|$(SYSCONFDIR)|g; s|@OF@|$(1)|g; s|@UNIT@|$(2)|g; s|@DIR@|$(3)|g; s|@CONF@|$(4)|g'
$(B)/systemd/%@.service: systemd/%.service.in FORCE
	@mkdir -p $(@D)
	$(Q)$(call fill, %i,@%i,-%i,%i) $< >$@
$(B)/systemd/%.service: systemd/%.service.in FORCE
	@mkdir -p $(@D)
	$(Q)$(call fill,,,,editd) $< >$@
UNITS := editd.service editd@.service editd-worker.service editd-worker@.service

install: all $(addprefix $(B)/systemd/,$(UNITS))
	$(call say,INST,$(DESTDIR)$(PREFIX))
	$(Q)set -e; to=$(DESTDIR)$(PREFIX); put() { mode=$$1 dir=$$2; shift 2; install -d $$dir; install -m $$mode $$@ $$dir; }; \
	put 755 $$to/bin $(addprefix $(B)/,editd edit-worker editctl edit-sim); \
	put 644 $$to/include worker/edit_worker.h; \
	install -D -m 644 $(B)/libedit-worker.so $$to/lib/libedit-worker.so.0; \
	ln -sf libedit-worker.so.0 $$to/lib/libedit-worker.so; \
	put 644 $$to/lib/systemd/system $(addprefix $(B)/systemd/,$(UNITS)); \
	install -D -m 644 systemd/sysusers.conf $$to/lib/sysusers.d/editd.conf; \
	install -D -m 644 systemd/tmpfiles.conf $$to/lib/tmpfiles.d/editd.conf; \
	put 644 $$to/share/doc/editd README.md LICENSE docs/*.md; \
	put 644 $$to/share/doc/editd/examples systemd/editd.conf systemd/editd-worker; \
	install -d $(DESTDIR)$(SYSCONFDIR)/editd

clean:
	$(Q)rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
