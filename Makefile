# One non-recursive Makefile. Everything built lands in build/; sanitizer and clang variants in folders of their own there.
#
#   make           the five products              make check    all tests (SAN=address,undefined: with sanitizers)
#   make tidy      the laws of the tree           make bench    measurements against a peer in the same run
#   make fuzz      libFuzzer on the codec         make demo     NODES=4 STEPS=400: nodes train on real text
#   make install   DESTDIR=, PREFIX=              V=1           show commands

VERSION    := 0.1.0
PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
NODES      ?= 4
STEPS      ?= 400
SAN        ?=

comma := ,
B     := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))$(if $(findstring clang,$(CC)),/clang)
Q     := $(if $(V),,@)
say    = $(if $(V),@:,@printf '  %-6s %s\n' $(1) $(2))

OPT      ?= -O2 -g
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
COMPILE   = $(CC) -std=c17 -D_GNU_SOURCE -DEDIT_VERSION='"$(VERSION)"' $(OPT) -fPIC -fvisibility=hidden -ffp-contract=off \
            -fno-math-errno $(WARN) -I. -I$(B) $(SANFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP
LINK      = $(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^

# ---- Objects by folder, in reading order -----------------------------------------------------------------------------

CORE   := vec penalty outer ring link view sync node
PROTO  := check safetensors peer.pb-c control.pb-c codec setting segment
DAEMON := 
LIBW   := edit_worker
MODEL  := 
SIM    := 
CTL    := 
TESTS  := test_safetensors

DAEMON_LIBS := -lzmq -lprotobuf-c -linih -ljansson -lxxhash -lsystemd -lm
WORKER_LIBS := -lopenblas -ljansson -lxxhash -lm -pthread
CTL_LIBS    := -lzmq -lprotobuf-c -ljansson -lm
SIM_LIBS    := -lxxhash -lm
TEST_LIBS   := -lcmocka $(DAEMON_LIBS) $(WORKER_LIBS)

objects = $(patsubst %,$(B)/$(1)/%.o,$(2))
PRODUCTS := $(addprefix $(B)/,editd edit-worker editctl edit-sim libedit-worker.so)

.PHONY: all check tidy bench fuzz demo install clean
.SECONDARY:
.DELETE_ON_ERROR:
all: $(PRODUCTS)

# ---- Products --------------------------------------------------------------------------------------------------------

# Each folder is an archive; a program takes from it what it uses. main.o is never inside.
$(B)/core.a:   $(call objects,core,$(CORE))
$(B)/proto.a:  $(call objects,proto,$(PROTO))
$(B)/daemon.a: $(call objects,daemon,$(DAEMON))
$(B)/worker.a: $(call objects,worker,$(LIBW) $(MODEL))
$(B)/ctl.a:    $(call objects,ctl,$(CTL))
$(B)/sim.a:    $(call objects,sim,$(SIM))
$(B)/%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/editd: $(B)/daemon/main.o $(B)/daemon.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(DAEMON_LIBS)
$(B)/edit-worker: $(B)/worker/main.o $(B)/worker.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(WORKER_LIBS)
$(B)/editctl: $(B)/ctl/main.o $(B)/ctl.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(CTL_LIBS)
$(B)/edit-sim: $(B)/sim/main.o $(B)/sim.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(SIM_LIBS)
$(B)/libedit-worker.so: $(call objects,worker,$(LIBW)) $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(LINK) -shared -Wl,-soname,libedit-worker.so.0 -Wl,--exclude-libs,ALL

# ---- Compiling -------------------------------------------------------------------------------------------------------

$(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<
$(B)/proto/%.pb-c.c $(B)/proto/%.pb-c.h &: proto/%.proto
	$(call say,PROTO,$<)
	@mkdir -p $(@D)
	$(Q)protoc-c --c_out=$(B) $<
$(B)/proto/%.pb-c.o: $(B)/proto/%.pb-c.c
	$(call say,CC,$<)
	$(Q)$(COMPILE) -Wno-conversion -c -o $@ $<
# Generated headers must be there before anything that may include them compiles.
$(call objects,proto,codec) $(call objects,daemon,main $(DAEMON)) $(call objects,ctl,main $(CTL)) $(call objects,tests,$(TESTS)): \
	| $(B)/proto/peer.pb-c.h $(B)/proto/control.pb-c.h

# ---- Tests -----------------------------------------------------------------------------------------------------------

$(B)/tests/%: $(B)/tests/%.o $(B)/daemon.a $(B)/worker.a $(B)/ctl.a $(B)/sim.a $(B)/proto.a $(B)/core.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(TEST_LIBS)

check: $(PRODUCTS) $(addprefix $(B)/tests/,$(TESTS))
	@for t in $(TESTS); do printf '  %-6s %s\n' TEST $$t; $(B)/tests/$$t || exit 1; done

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
