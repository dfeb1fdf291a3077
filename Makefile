# needled: one file, read from top to bottom: settings, flags, lists, targets, rules.

BUILD    ?= release
OUT      ?= build/$(BUILD)
JOBS     ?= $(shell nproc)
PARALLEL  = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))
KILLS    ?= 200
V        ?=
Q        := $(if $(V),,@)
DEB_DEPS := build-essential pkg-config libmicrohttpd-dev libcjson-dev libopenblas-dev libsqlite3-dev \
            libsentencepiece-dev libcurl4-openssl-dev nettle-dev libcmocka-dev libyaml-dev curl \
            libjs-dygraphs
PKGS     := libmicrohttpd libcjson openblas sqlite3 sentencepiece libcurl nettle yaml-0.1

# ---- flags ---------------------------------------------------------------------------------------

CC       ?= gcc
CXX      ?= g++
OBJCOPY  ?= objcopy
VERSION  := $(shell cat daemon/VERSION)
CPPFLAGS += -I. -D_GNU_SOURCE -MMD -MP -DNEEDLED_VERSION='"$(VERSION)"' \
            $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wwrite-strings -Wformat=2 \
            -Wno-format-truncation $(if $(WERROR),-Werror)
CFLAGS   += -std=c17 -g $(WARNINGS) -Wstrict-prototypes -Wmissing-prototypes $(FLAGS_$(BUILD))
CXXFLAGS += -std=c++17 -g -Wall -Wextra $(if $(WERROR),-Werror) $(FLAGS_$(BUILD))
LDFLAGS  += $(FLAGS_$(BUILD))
LIBS_ALL := $(shell pkg-config --libs $(filter-out yaml-0.1,$(PKGS)) 2>/dev/null) -lstdc++ -lpthread -ldl -lm
FLAGS_release := -O3
FLAGS_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FLAGS_ops_asan := -O2 # instrumented products are most of what the tests' time goes to
FLAGS_tsan    := -O1 -fsanitize=thread
FLAGS_fuzz    := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
                 -fno-omit-frame-pointer -Wno-unknown-warning-option

# The cpu backend's ops are compiled once a level; the processor decides at run time.
LEVELS       := plain $(if $(findstring x86_64,$(shell $(CC) -dumpmachine 2>/dev/null)),avx2 avx512)
FLAGS_level  := -fno-math-errno -fno-trapping-math \
                $(if $(filter fuzz,$(BUILD)),-O0 -fno-sanitize=all) # no target reads bytes there
FLAGS_plain  := $(FLAGS_level)
FLAGS_avx2   := $(FLAGS_level) -mavx2 -mfma -mf16c -ffp-contract=fast -fvisibility=hidden
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512

# ---- lists: a room is a folder of sources and becomes one archive; later rooms use earlier ones ----

ROOMS       := base kernels model train store sched api client
SRC_base    := $(wildcard daemon/base/*.c)
SRC_kernels := $(wildcard kernels/*.c kernels/ref/*.c kernels/cpu/*.c kernels/examples/*.c)
SRC_cpu_ops := $(wildcard kernels/cpu/ops/*.c)
SRC_model   := $(wildcard daemon/model/*.c daemon/model/*.cc)
SRC_train   := $(wildcard daemon/train/*.c)
SRC_store   := $(wildcard store/*.c)
SRC_sched   := $(wildcard daemon/sched/*.c)
SRC_api     := $(wildcard api/*.c)
SRC_client  := $(filter-out client/needlectl.c,$(wildcard client/*.c))
SRC_main    := daemon/main.c daemon/config.c daemon/check.c daemon/service.c
SRC_support := $(filter-out tests/support/op_%,$(wildcard tests/support/*.c))
SRC_opcases := $(wildcard tests/support/op_*.c)
SRC_bench   := $(filter-out tests/bench/bench_%,$(wildcard tests/bench/*.c tests/bench/*.cc))
SRC_lines   := $(wildcard tests/support/lines/*.c)

OBJ_kernels := $(LEVELS:%=$(OUT)/cpu_%.o)
OBJ_api     := $(OUT)/api/openapi_json.o $(OUT)/api/dashboard_files.o

# The dashboard's own files and Debian's dygraphs, as they are called below /dashboard/.
DYGRAPHS    := /usr/share/javascript/dygraphs
DASHBOARD   := $(patsubst client/dashboard/%,%,$(wildcard $(addprefix client/dashboard/,*.html *.css *.js *.svg */*.js))) \
               dygraphs.js dygraphs.css

object = $(patsubst %,$(OUT)/%.o,$(basename $(1)))
archive = $(foreach room,$(1),$(OUT)/lib$(room).a)

NEEDS_base    := base
NEEDS_kernels := kernels base
NEEDS_model   := model kernels base
NEEDS_train   := train model kernels base
NEEDS_store   := store base
NEEDS_sched   := sched store train model kernels base
NEEDS_api     := api sched store train model kernels base
NEEDS_client  := client
NEEDS_bench   := bench client $(NEEDS_train)
NEEDS_end     := api sched store train model kernels base

# What the benches train on: made once, by what they are made from.
BENCH        := build/bench
BENCH_LINES  := mixed long one-app shuffled
BENCH_FILES  := $(BENCH)/base/base.safetensors $(BENCH_LINES:%=$(BENCH)/%.jsonl)

BENCHES      := $(patsubst tests/bench/%.c,$(OUT)/tests/%,$(wildcard tests/bench/bench_*.c))

# What libFuzzer drives, built by clang in a folder of its own.
DEB_FUZZ     := clang libclang-rt-14-dev
FUZZ         ?= build/fuzz
SECONDS      ?= 30
FUZZ_TESTS   := $(patsubst tests/fuzz/%.c,$(OUT)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))

UNIT_SRC   := $(wildcard tests/unit/test_*.c)
UNIT_TESTS := $(patsubst tests/unit/%.c,$(OUT)/tests/%,$(UNIT_SRC))
SHIMS      := $(patsubst tests/support/%.c,$(OUT)/%.so,$(wildcard tests/support/shims/*.c))

# ---- targets -------------------------------------------------------------------------------------

.PHONY: all help deps demo test test-unit test-asan test-tsan check lint format clean
.DEFAULT_GOAL := all

all: $(OUT)/needled $(OUT)/needlectl ## build the daemon and its client

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 26

deps: ## install the build dependencies (apt), or say the one command that does
	@tests/support/deps.sh $(DEB_DEPS)

demo: ## build, start a daemon, fine-tune the small base model, show the curve
	@tests/support/deps.sh $(DEB_DEPS)
	@$(MAKE) --no-print-directory $(PARALLEL) all $(OUT)/tests/make_lines
	@tests/demo.sh $(OUT)

test: ## build and run every test; ends with "N passed, N failed"
	@tests/support/deps.sh $(DEB_DEPS)
	@$(MAKE) --no-print-directory $(PARALLEL) all tests-built
	@tests/run.sh $(OUT)

test-unit: tests-built ## run the unit tests alone
	@tests/run.sh $(OUT) unit

test-asan: ## the same tests under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory test BUILD=asan

test-tsan: ## the threaded rooms' tests under the thread sanitizer
	@$(MAKE) --no-print-directory $(PARALLEL) tests-built BUILD=tsan
	@tests/run.sh build/tsan tsan

soak: all tests-built ## a simulated day of 10,000 tiny jobs with a clock that jumps; prints memory, descriptors, costs (10 minutes)
	@bash tests/ops/soak.sh $(OUT) 10000

fuzz: ## every parser of outside bytes under libFuzzer, SECONDS each (30), from kept inputs
	@tests/support/deps.sh $(DEB_DEPS) $(DEB_FUZZ)
	@$(MAKE) --no-print-directory $(PARALLEL) BUILD=fuzz CC=clang CXX=clang++ OUT=$(FUZZ) WERROR= fuzz-built
	@tests/fuzz/run.sh $(FUZZ) $(SECONDS)

test-reference: all ## the reference implementation (PyPI) reads what we wrote, in a virtual environment
	@tests/reference/run.sh $(OUT) $(wildcard build/demo/adapter.safetensors)

test-http: all ## stock clients from PyPI against the daemon, in a virtual environment
	@tests/http/run.sh $(OUT)

test-browser: all $(SHIMS) ## the dashboard in Debian's Chromium: what people do with it, and pictures of every page
	@tests/browser/run.sh $(OUT)

crash: all ## kill -9 at random times under load: KILLS=200, SEED=n (2 minutes a hundred)
	@python3 tests/ops/crash/crash.py $(OUT) --kills $(KILLS) $(if $(SEED),--seed $(SEED))

faults: all $(SHIMS) ## each write, sync, SQLite step, place that allocates, ... fails (40 minutes; KIND=sync: one kind)
	@python3 tests/ops/faults/faults.py $(OUT) $(if $(KIND),--kinds $(KIND)) --minutes $(or $(MINUTES),90) --jobs 2

.PHONY: crash faults tests-built soak test-reference test-http test-browser bench bench-http bench-reference bench-base bench-built
tests-built: $(UNIT_TESTS) $(OUT)/tests/make_lines $(BENCHES) $(SHIMS)

bench: all bench-built ## time steps, memory and start-up at the real geometry (QUICK=1: 2 minutes)
	@$(OUT)/tests/bench_table $(OUT)/needled $(BENCH) $(if $(QUICK),quick)

bench-http: all $(OUT)/tests/bench_http bench-base ## 500 readers of a job's events while it trains: what training loses, delays, memory
	@$(OUT)/tests/bench_http $(OUT)/needled $(BENCH) base batch 8 words 60 pairs 6 seconds 20
	@$(OUT)/tests/bench_http $(OUT)/needled tests/fixtures needle3 batch 64
	@$(OUT)/tests/bench_http $(OUT)/needled tests/fixtures/needle3 mini

bench-reference: bench-built ## our speed over the reference implementation's, in one run (25 minutes)
	@tests/bench/reference.sh $(OUT)/tests/bench_train $(BENCH)/base $(BENCH)/mixed.jsonl

bench-base: ## the base model, tokenizer and lines of the benches, in build/bench
	@$(MAKE) --no-print-directory $(PARALLEL) $(BENCH_FILES)

cuda: ## the plug-in for NVIDIA's cards, needled-cuda.so beside the program (needs nvcc, not a card)
	@test -n "$(NVCC)" || { echo "make cuda: nvcc is not installed; NVCC=/path/to/nvcc says where it is" >&2; exit 1; }
	@$(MAKE) --no-print-directory $(PARALLEL) $(OUT)/needled-cuda.so

test-cuda: ## the kernels for cards: over a stand-in for CUDA, and compiled for each kind of card
	@tests/support/deps.sh $(DEB_DEPS)
	@$(MAKE) --no-print-directory $(PARALLEL) cuda-tests-built
	@tests/kernels/run.sh $(OUT)

test-gpu: ## on a machine with an NVIDIA card: build for it, test and measure on it (8 minutes)
	@tests/gpu/run.sh build/gpu

test-gpu-deep: ## every access of the kernels watched by Oclgrind; faults made on purpose are found (8 minutes)
	@tests/support/deps.sh $(DEB_DEPS) $(DEB_DEEP)
	@$(MAKE) --no-print-directory $(PARALLEL) $(OUT)/opencl/test_opencl
	@tests/kernels/opencl/run.sh $(OUT)

cuda-budget: cuda ## rewrite the table of registers and shared memory per kernel and target
	@tests/kernels/budget.sh $(OUT) --write

bench-built: bench-base
	@$(MAKE) --no-print-directory $(PARALLEL) $(BENCHES)

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
DEB_VERSION ?= $(VERSION)
export PREFIX DESTDIR SYSCONFDIR

# As a target's need: the program that puts the filter in force, where its library is installed.
HAS_seccomp = $(shell pkg-config --exists libseccomp && echo $(OUT)/tests/syscall_filter)

.PHONY: install uninstall deb test-deb test-systemd test-filter
install: all ## install under PREFIX (/usr/local), below DESTDIR if set; systemd/README.md has what comes next
	@systemd/install.sh install $(OUT)

uninstall: ## remove what install brought; state and changed settings stay
	@systemd/install.sh uninstall $(OUT)

deb: all ## build needled_*.deb, and needled-cuda_*.deb where nvcc is installed
	@$(if $(NVCC),$(MAKE) --no-print-directory cuda)
	@systemd/deb.sh $(OUT) $(DEB_VERSION)

test-deb: all $(OUT)/tests/make_lines ## the packages in a fresh Debian 12, as root with debootstrap (3 minutes)
	@tests/deb/run.sh $(OUT)

test-systemd: all $(OUT)/tests/make_lines ## the package under a real systemd, in a booted Debian 12, as root with systemd-nspawn (2 minutes)
	@tests/systemd/run.sh $(OUT)

test-filter: all $(OUT)/tests/make_lines $(SHIMS) $(HAS_seccomp) ## the daemon's tests under the unit's system-call filter (10 minutes; SAMPLE=1: one)
	@tests/filter/run.sh $(OUT) $(if $(SAMPLE),sample)

lint: ## format, include rules, banned calls, static analysis
	@tests/lint/run.sh

format: ## rewrite every source in the house format
	@git ls-files '*.c' '*.h' '*.cc' '*.cu' | xargs clang-format -i

check: ## the gate: tests plain and under the sanitizers, lint, the demo
	@$(MAKE) --no-print-directory WERROR=1 test test-asan lint demo

clean: ## remove every output
	rm -rf build

# ---- rules ---------------------------------------------------------------------------------------

# Before the first object: the packages to install in place of a compiler's or linker's errors.
$(OUT)/deps:
	@{ command -v $(firstword $(CC)) && command -v $(firstword $(CXX)) && pkg-config --exists $(PKGS) && test -e $(DYGRAPHS)/dygraph.min.js; } >/dev/null 2>&1 || \
	    tests/support/deps.sh --say $(DEB_DEPS)
	@mkdir -p $(@D) && touch $@

.PRECIOUS: $(OUT)/%.o

$(OUT)/%.o: %.c | $(OUT)/deps
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC    $<")
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(OUT)/%.o: %.cc | $(OUT)/deps
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX   $<")
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

# The description of what is served, as text in the program.
$(OUT)/embed: $(OUT)/api/openapi/embed.o
	$(Q)$(CC) $(LDFLAGS) $^ $(shell pkg-config --libs yaml-0.1 2>/dev/null) -o $@

$(OUT)/api/openapi_json.c: api/openapi.yaml daemon/VERSION $(OUT)/embed
	@mkdir -p $(@D)
	$(Q)$(OUT)/embed $(VERSION) <$< >$@.part && mv $@.part $@

# The dashboard's files, each beside itself made smaller, as bytes in the program.
$(OUT)/embed_dashboard: $(OUT)/api/dashboard/embed.o
	$(Q)$(CC) $(LDFLAGS) $^ $(shell pkg-config --libs nettle 2>/dev/null) -o $@

$(OUT)/dashboard/dygraphs.%: $(DYGRAPHS)/dygraph.min.% | $(OUT)/deps
	@mkdir -p $(@D)
	$(Q)sed 's|[/]./*# sourceMappingURL=.*||' $< >$@

$(OUT)/dashboard/%: client/dashboard/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(OUT)/dashboard/%.gz: $(OUT)/dashboard/%
	$(Q)gzip -9nc $< >$@.part && mv $@.part $@

.SECONDARY: $(foreach file,$(DASHBOARD),$(OUT)/dashboard/$(file) $(OUT)/dashboard/$(file).gz)
$(OUT)/api/dashboard_files.c: $(foreach file,$(DASHBOARD),$(OUT)/dashboard/$(file) $(OUT)/dashboard/$(file).gz) $(OUT)/embed_dashboard
	@mkdir -p $(@D)
	$(Q)$(OUT)/embed_dashboard $(OUT)/dashboard $(DASHBOARD) >$@.part && mv $@.part $@

$(OBJ_api): $(OUT)/%.o: $(OUT)/%.c
	@$(if $(V),,echo "  CC    $<")
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# A level's objects become one, of which only the table is seen from outside. Rounding to a grid must
# give the oracle's bits, so nothing is fused there.
define level_rule
$(OUT)/$(1)/%.o: %.c | $(OUT)/deps
	@mkdir -p $$(@D)
	@$$(if $$(V),,echo "  CC    $$< ($(1))")
	$$(Q)$$(CC) $$(CPPFLAGS) -DCPU_LEVEL=$(1) $$(CFLAGS) $$(FLAGS_ops_$(BUILD)) $$(FLAGS_$(1)) -c $$< -o $$@

$(OUT)/$(1)/kernels/cpu/ops/quant.o: FLAGS_$(1) += -ffp-contract=off

$(OUT)/cpu_$(1).o: $(patsubst %.c,$(OUT)/$(1)/%.o,$(SRC_cpu_ops))
	$$(Q)$$(LD) -r $$^ -o $$@
	$$(Q)$$(OBJCOPY) --localize-hidden $$@
endef
$(foreach level,$(LEVELS),$(eval $(call level_rule,$(level))))

define room_rule
$(OUT)/lib$(1).a: $(call object,$(SRC_$(1))) $(OBJ_$(1))
	@rm -f $$@
	$(Q)ar rcs $$@ $$^
endef
$(foreach room,$(ROOMS) support opcases bench,$(eval $(call room_rule,$(room))))

$(OUT)/needled: $(call object,$(SRC_main)) $(call archive,$(NEEDS_end))
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ $(LIBS_ALL) -o $@

$(OUT)/needlectl: $(OUT)/client/needlectl.o $(call archive,client)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ $(LIBS_ALL) -o $@

# A unit test is named test_<room>_<module>.c and is linked with that room and the rooms below it.
define unit_rule
$(OUT)/tests/test_$(1)_%: $(OUT)/tests/unit/test_$(1)_%.o $(call archive,$(if $(filter kernels,$(1)),opcases) support $(NEEDS_$(1)))
	@mkdir -p $$(@D)
	@$(if $(V),,echo "  LINK  $$@")
	$(Q)$(CC) $(LDFLAGS) $$^ $(LIBS_ALL) -lcmocka -o $$@
endef
$(foreach room,$(ROOMS) bench,$(eval $(call unit_rule,$(room))))

fuzz-built: $(FUZZ_TESTS)

$(OUT)/tests/fuzz_%: $(OUT)/tests/fuzz/fuzz_%.o $(OUT)/tests/fuzz/fuzz.o $(OUT)/daemon/config.o $(call archive,client $(NEEDS_api))
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CXX) -fsanitize=fuzzer $(LDFLAGS) $^ $(LIBS_ALL) -o $@

# Made again when what makes them changes, not when the trainer they are linked with does.
$(BENCH)/%.jsonl: $(SRC_lines) | $(OUT)/tests/make_lines
	@mkdir -p $(@D)
	$(Q)$(OUT)/tests/make_lines 640 32 $* >$@.part && mv $@.part $@

$(BENCH)/base/base.safetensors: tests/bench/bench_base.c tests/bench/train_tokenizer.cc $(SRC_lines) | \
    $(OUT)/tests/bench_base $(OUT)/tests/make_lines
	@mkdir -p $(@D)
	$(Q)$(OUT)/tests/make_lines 4000 11 mixed >$(BENCH)/tokenizer.jsonl
	$(Q)$(OUT)/tests/bench_base $(BENCH)/tokenizer.jsonl $(@D)

# The benches: programs of tests/bench over the trainer's rooms.
$(OUT)/tests/bench_%: $(OUT)/tests/bench/bench_%.o $(call archive,$(NEEDS_bench))
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ $(LIBS_ALL) -o $@

# What tests put before the C library with LD_PRELOAD.
$(OUT)/shims/%.so: tests/support/shims/%.c | $(OUT)/deps
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -g -O2 $(WARNINGS) -fPIC -shared $< -ldl -o $@

$(OUT)/tests/syscall_filter: $(OUT)/tests/filter/filter.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $^ -lseccomp -o $@

$(OUT)/tests/make_lines: $(call object,$(SRC_lines))
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $^ -o $@

# ---- kernels for cards, without one: tests/kernels/README.md -------------------------------------

# One source, compiled by g++ over the stand-in three times, and by nvcc where it is installed.
STANDINS     := fast asan race
DEB_DEEP     := pocl-opencl-icd ocl-icd-opencl-dev oclgrind
SRC_gpu      := $(wildcard kernels/gpu/*.cu)
SRC_cuda     := $(wildcard kernels/cuda/*.cu)
SRC_standin  := $(wildcard tests/kernels/standin/*.cc)
CUDA_TESTS   := standin cublas reports faults ops step
SRC_opencl   := tests/kernels/opencl/opencl.cc $(filter-out %/blas.cu,$(SRC_cuda))
HAS_opencl   := $(shell pkg-config --exists OpenCL && echo yes)
NVCC         ?= $(shell command -v nvcc)
CUDA_ARCH    := 75 80 86 89 90 100 120
OBJ_cuda     := $(if $(NVCC),$(patsubst %.cu,$(OUT)/cuda/%.o,$(SRC_gpu) $(SRC_cuda)))
NVCCFLAGS    := -std=c++17 -O3 -I. -Werror all-warnings \
                -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics \
                --compress-mode=size \
                $(foreach arch,$(CUDA_ARCH),-gencode arch=compute_$(arch),code=sm_$(arch)) \
                -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))

# Race: the compiler's thread sanitizer calls our checker (standin/check.cc); its library is not linked.
CXXFLAGS_standin   := -std=c++17 -g -Wall -Wextra $(if $(WERROR),-Werror) -Itests/kernels/standin -ffp-contract=off \
                      -fPIC -fvisibility=hidden -ftls-model=initial-exec -DMONARCH_TILE_FLOATS=20000 -DCUDA_STAGING_PIECE_BYTES=65536 # small: tests come to a second
FLAGS_kernels_fast := -O2
FLAGS_kernels_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_kernels_race := -O1 -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -DSTANDIN_RACE
FLAGS_standin_fast := -O2
FLAGS_standin_asan := $(FLAGS_kernels_asan)
FLAGS_standin_race := -O2 -DSTANDIN_RACE

# The stand-in as a plug-in, for tests of the whole program.
PLUGIN_build := $(if $(filter asan,$(BUILD)),asan,fast)
# Drivers without a card, and plug-ins that are none: tests/kernels/plugin.sh.
FAKES        := $(addprefix $(OUT)/fakes/,libcuda.so.1 libnvidia-ml.so.1 old_plugin.so other_table.so)

.PHONY: cuda cuda-budget cuda-tests-built test-cuda test-gpu-deep test-gpu
cuda-tests-built: $(foreach build,$(STANDINS),$(CUDA_TESTS:%=$(OUT)/standin-$(build)/test_%)) $(OUT)/plugins/needled-cuda.so \
    $(OUT)/show_cuda $(OUT)/time_plugin $(OUT)/test_golden $(FAKES) $(SHIMS) $(OUT)/needled $(OUT)/tests/make_lines $(OUT)/tests/bench_train \
    $(if $(NVCC),$(OUT)/needled-cuda.so) $(if $(HAS_opencl),$(OUT)/opencl/test_opencl)

define standin_rules
$(OUT)/standin-$(1)/%.o: % | $(OUT)/deps
	@mkdir -p $$(@D)
	@$$(if $$(V),,echo "  CXX   $$< ($(1))")
	$(Q)$(CXX) $$(CPPFLAGS) $$(CXXFLAGS_standin) \
	    $$(FLAGS_$$(if $$(filter tests/kernels/standin/%,$$<),standin,kernels)_$(1)) -x c++ -c $$< -o $$@

$(OUT)/standin-$(1)/libstandin.a: $(SRC_standin:%=$(OUT)/standin-$(1)/%.o)
	@rm -f $$@
	$(Q)ar rcs $$@ $$^

$(OUT)/standin-$(1)/test_faults: $(patsubst %,$(OUT)/standin-$(1)/tests/kernels/%.o,test_faults.cc faults/runs.cc faults/faults.cu)
$(addprefix $(OUT)/standin-$(1)/test_,standin cublas reports): $(OUT)/standin-$(1)/test_%: \
    $(OUT)/standin-$(1)/tests/kernels/test_%.cc.o
$(OUT)/standin-$(1)/test_ops: $(OUT)/tests/kernels/test_ops.o \
    $(patsubst %,$(OUT)/standin-$(1)/%.o,$(SRC_gpu) $(SRC_cuda)) $(call archive,opcases support kernels base)
$(OUT)/standin-$(1)/test_step: $(OUT)/tests/kernels/test_step.o \
    $(patsubst %,$(OUT)/standin-$(1)/%.o,$(SRC_gpu) $(SRC_cuda)) $(call archive,support $(NEEDS_train))
$(CUDA_TESTS:%=$(OUT)/standin-$(1)/test_%): $(OUT)/standin-$(1)/libstandin.a
	@$$(if $$(V),,echo "  LINK  $$@")
	$(Q)$(CXX) $(if $(filter asan,$(1)),$(FLAGS_kernels_asan)) $$(filter %.o,$$^) $$(filter %.a,$$^) $$(LIBS_ALL) -lcmocka -o $$@
endef
$(foreach build,$(STANDINS),$(eval $(call standin_rules,$(build))))

$(OUT)/plugins/needled-cuda.so: $(patsubst %,$(OUT)/standin-$(PLUGIN_build)/%.o,$(SRC_gpu) $(SRC_cuda)) \
    $(OUT)/standin-$(PLUGIN_build)/libstandin.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CXX) -shared $(if $(filter asan,$(PLUGIN_build)),$(FLAGS_kernels_asan),-Wl,-z,defs) $^ $(LIBS_ALL) -o $@

# The same tests on a card: tests/gpu/run.sh.
$(OUT)/gpu/test_ops: $(OUT)/tests/kernels/test_ops.o $(OUT)/tests/gpu/card.o $(OBJ_cuda) \
    $(call archive,opcases support kernels base)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(NVCC) -cudart static $^ $(LIBS_ALL) -lcmocka -o $@

$(OUT)/show_cuda: $(OUT)/tests/kernels/show_cuda.o $(call archive,kernels base)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ $(LIBS_ALL) -o $@

# The recorded runs, on whatever the plug-in in NEEDLED_PLUGINS drives.
$(OUT)/test_golden: $(OUT)/tests/kernels/test_golden.o $(call archive,support $(NEEDS_train))
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ $(LIBS_ALL) -lcmocka -o $@

$(OUT)/time_plugin: $(OUT)/tests/kernels/time_plugin.o
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ -ldl -o $@

$(OUT)/fakes/%.so.1: tests/kernels/fakes/%.c | $(OUT)/deps
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra -fPIC -shared $< -ldl -o $@

$(OUT)/fakes/%.so: tests/kernels/fakes/old_plugin.c kernels/plugin.h kernels/table.h kernels/backend.h | $(OUT)/deps
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -I. -Wall -Wextra -fPIC -shared $(if $(filter other_table,$*),-DOTHER_TABLE) $< -o $@

# The host side over OpenCL, for PoCL and Oclgrind: tests/kernels/opencl.
$(OUT)/opencl/%.o: % | $(OUT)/deps
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX   $< (opencl)")
	$(Q)$(CXX) $(CPPFLAGS) -Itests/kernels/opencl $(CXXFLAGS_standin) $(FLAGS_kernels_fast) -x c++ -c $< -o $@

$(OUT)/opencl/test_opencl: $(OUT)/tests/kernels/opencl/test_opencl.o $(SRC_opencl:%=$(OUT)/opencl/%.o) \
    $(call archive,opcases support kernels base)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CXX) $(LDFLAGS) $^ $(LIBS_ALL) -lOpenCL -lcmocka -o $@

# Without a library of CUDA's but the static runtime: it loads where there are none.
$(OUT)/needled-cuda.so: $(OBJ_cuda)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(NVCC) -shared -cudart static -Xlinker --exclude-libs,ALL -Xlinker -z,defs $^ -ldl -lpthread -o $@

# ptxas tells registers, spills and shared memory of each kernel on each target: run.sh reads it.
$(OUT)/cuda/%.o: %.cu
	@mkdir -p $(@D)
	@$(if $(V),,echo "  NVCC  $<")
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -Xptxas -v -c $< -o $@ 2>$@.ptxas || { cat $@.ptxas; rm -f $@; exit 1; }

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
