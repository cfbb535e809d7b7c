# quill: `make` builds the binary, `make test` runs all tests, `make install` installs it. `make help` lists the targets.
MAKEFLAGS += -r # no built-in rules
.DEFAULT_GOAL := quill
.DELETE_ON_ERROR: # a page or an archive that a failed command has begun
CC      ?= cc
CFLAGS  ?= -O2 -g
PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build/release

# The model that is linked into the binary: MODEL=FILE links another one, NO_MODEL=1 none.
MODEL := models/quill-stories.gguf
ifdef NO_MODEL
override MODEL :=
endif

# ---- files: all sources of the top level and of the directories; sources with special flags follow below ----
VECTOR  := $(wildcard cpu/vector*.c encode/vector*.c) # compiled once per instruction set
INT_AVX2 := cpu/int8_avx2.c cpu/int8_panels_avx2.c cpu/int16_attend.c # once for AVX2 and once for AVX-VNNI
ROOMS   := base formats files hf hub tokens grammar jinja cpu gpu encode load kv blend policy answer term cli chat batch look bench quantize
SOURCES := $(filter-out main.c gpu/% cpu/vector% encode/vector% cpu/int8_% cpu/int16_% cpu/bf16_% cpu/amx%,$(wildcard *.c $(ROOMS:%=%/*.c)))
RIGS    := $(filter-out tests/rig/make_tiny.c tests/rig/faults.c tests/rig/masks.c,$(wildcard tests/rig/*.c))
TESTS   := $(notdir $(basename $(wildcard tests/test_*.c)))
BATS    := $(notdir $(wildcard tests/*.bats))
FUZZ    := $(notdir $(basename $(wildcard tests/fuzz_*.c)))
# The longest tests first, so that parallel tests end at about the same time.
LONG    := gpu.bats test_cuda_golden test_cuda test_cuda_families cli.bats test_cuda_tokens test_gpu_kernels test_cuda_rows test_model faults.bats kv.bats test_rounding

# ---- flags ----
# -ffp-contract=off: products and sums are not fused, except in the vector kernels, which are compiled with =fast.
override CFLAGS += -std=c11 -Wall -Wextra -Wno-psabi -Wvla -ffp-contract=off -fno-math-errno -pthread -I. -MMD -MP $(CPPFLAGS) $(SANITIZE)
SIMD    ?= -O3 -ffp-contract=fast
AVX2    := -DQUILL_SIMD=256 -mavx2 -mfma -mf16c
AVXVNNI := $(AVX2) -mavxvnni
AVX512  := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
VNNI    := $(AVX512) -mavx512vnni
VBMI    := $(VNNI) -mavx512vbmi -mgfni -mbmi2
BF16    := $(AVX512) -mavx512bf16
AMX     := $(AVX512) -mavx512vbmi -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8
MACHINE := $(shell $(CC) -dumpmachine)
# Changed flags rebuild everything; a changed list of objects rebuilds an archive.
CONFIG  := $(CC) $(CFLAGS) $(SIMD) $(AVXVNNI) $(AMX)
stamp    = @mkdir -p $(@D); echo '$(subst ','\'',$(1))' | cmp -s - $@ || echo '$(subst ','\'',$(1))' >$@
$(BUILD)/config: FORCE
	$(call stamp,$(CONFIG))
$(BUILD)/objects: FORCE
	$(call stamp,$(OBJS) $(CUDA_OBJS))

OBJS = $(SOURCES:%.c=$(BUILD)/%.o) $(VECTOR:%.c=$(BUILD)/%.portable.o)
ifneq ($(filter x86_64%,$(MACHINE)),)
INT_VNNI := $(patsubst %,$(BUILD)/cpu/%.o,int8_vnni int8_whole int8_books int8_panels int16_attend.vnni)
INT_MADD := $(patsubst %.c,$(BUILD)/%.o,$(INT_AVX2) cpu/int8_whole_avx2.c)
OBJS += $(VECTOR:%.c=$(BUILD)/%.avx2.o) $(VECTOR:%.c=$(BUILD)/%.avx512.o) $(INT_MADD) $(INT_VNNI)
ifeq ($(shell $(CC) $(AVXVNNI) -x c -E /dev/null >/dev/null 2>&1 && echo yes),yes)
OBJS += $(INT_AVX2:%.c=$(BUILD)/%.avxvnni.o)
else
override CFLAGS += -DQUILL_NO_AVXVNNI
endif
ifeq ($(shell $(CC) $(BF16) -x c -E /dev/null >/dev/null 2>&1 && echo yes),yes)
OBJS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard cpu/bf16_*.c))
else
override CFLAGS += -DQUILL_NO_BF16
endif
ifeq ($(shell $(CC) $(AMX) -x c -E /dev/null >/dev/null 2>&1 && echo yes),yes)
OBJS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard cpu/amx*.c))
else # gcc before 11
override CFLAGS += -DQUILL_NO_AMX
endif
endif

# The GPU backend without its runtime (gpu/rt.c), which the tests replace by a twin.
CUDA_BACKEND := $(filter-out gpu/cuda_none.c gpu/rt.c,$(wildcard gpu/*.c))

# ---- CUDA: used if nvcc is found (CUDA_HOME, /usr/local/cuda, PATH); NO_CUDA=1 leaves it out ----
# CUDA_ARCH: native, sm_NN, or all: sm_80, 86, 89, 90 and PTX for later GPUs. The CUDA runtime is linked in, and cuBLAS is
# opened when it is needed, so that the binary runs on machines without a driver.
NVCC := $(if $(NO_CUDA),,$(firstword $(wildcard $(CUDA_HOME:%=%/bin/nvcc) /usr/local/cuda/bin/nvcc) $(shell command -v nvcc)))
ifneq ($(NVCC),)
CUDA      := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_LIB  := $(firstword $(wildcard $(CUDA)/lib64 $(CUDA)/targets/*/lib $(CUDA)/lib))
CUDA_ARCH ?= $(if $(wildcard /dev/nvidia0),native,sm_90)
CUDA_CODE := -arch=$(CUDA_ARCH)
ifeq ($(CUDA_ARCH),all)
CUDA_CODE := $(foreach n,80 86 89 90,-gencode arch=compute_$(n),code=sm_$(n)) -gencode arch=compute_90,code=compute_90
endif
# gpu/flash_sm90.cu is for sm_90a alone; a binary for other GPUs has a stub.
SM90A := -gencode arch=compute_90a,code=sm_90a
ifneq ($(filter native all sm_90 sm_90a,$(CUDA_ARCH)),)
CODE_flash_sm90 := $(SM90A)
TRY_FLASH = $(BUILD)/tests/try_flash
else
CODE_flash_sm90 := $(CUDA_CODE) -DQUILL_NO_SM90
endif
NVCCFLAGS ?= -O3
NVFLAGS   := $(NVCCFLAGS) -std=c++17 -I. -ccbin $(lastword $(CXX)) -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-fno-exceptions,-fno-threadsafe-statics -MMD -MP
CUDA_OBJS := $(CUDA_BACKEND:%.c=$(BUILD)/%.o) $(BUILD)/gpu/rt.o $(BUILD)/kernels.o $(BUILD)/gpu/flash_sm90.o
$(BUILD)/gpu/rt.o: override CFLAGS += $(if $(filter-out /usr,$(CUDA)),-isystem $(CUDA)/include) -DQUILL_CUDA_LIB='"$(CUDA_LIB)"'
# Links only the part of the C++ library that nvcc's host code needs, and no library that must be found at start.
CUDA_LIBS = -L$(CUDA_LIB) -lcudart_static $(call static,stdc++) -static-libgcc -lrt
else
CUDA_OBJS := $(BUILD)/gpu/cuda_none.o
endif

# A library's static archive if the distribution has it, otherwise the shared library.
static  = $(if $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a)),-l:lib$(1).a,-l$(1))
# Static libedit needs libtinfo, and on Debian libbsd, which needs libmd; quill uses libmd's SHA-256 as well.
EDIT   := $(if $(filter -l:%,$(call static,edit)),$(foreach l,edit tinfo bsd,$(call static,$(l))),-ledit)
LIBS   := $(call static,pcre2-8) $(call static,jansson) $(call static,xxhash) $(call static,utf8proc) $(EDIT) $(call static,md) $(CUDA_LIBS) -ldl -lm -pthread

# ---- the binary ----
quill: $(BUILD)/quill FORCE ## the binary (the default)
	@cmp -s $< $@ || { echo "cp $< $@"; cp $< $@.new && mv $@.new $@; } # replaces a running binary instead of writing into it
$(BUILD)/quill: $(BUILD)/main.o $(BUILD)/quill.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
# A thin archive: a program that links it gets only the objects that it needs.
$(BUILD)/quill.a: $(OBJS) $(CUDA_OBJS) $(BUILD)/objects
	@rm -f $@ && $(AR) rcsT $@ $(filter %.o,$^)
$(BUILD)/%.o: %.c Makefile $(BUILD)/config
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<
# Comparisons of floats may raise flags that nobody reads: without this, gcc uses no vectors here.
$(BUILD)/base/log_sum_exp.o: override CFLAGS += -fno-trapping-math
# Each of these sources is compiled to one object for each instruction set.
define vector_objects
$(VECTOR:%.c=$(BUILD)/%.$(1).o): $(BUILD)/%.$(1).o: %.c Makefile $(BUILD)/config
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(SIMD) $(2) -c -o $$@ $$<
endef
# Compiled without contraction: quantised files must have the same bytes with every instruction set.
$(BUILD)/encode/vector_%.o: override SIMD += -ffp-contract=off
$(eval $(call vector_objects,portable,-DQUILL_SIMD=0))
$(eval $(call vector_objects,avx2,$(AVX2)))
$(eval $(call vector_objects,avx512,-DQUILL_SIMD=512 $(AVX512)))
$(INT_MADD): override CFLAGS += $(SIMD) $(AVX2)
$(INT_AVX2:%.c=$(BUILD)/%.avxvnni.o): $(BUILD)/%.avxvnni.o: %.c Makefile $(BUILD)/config
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(SIMD) $(AVXVNNI) -c -o $@ $<
$(INT_VNNI): override CFLAGS += $(SIMD) $(VNNI)
$(BUILD)/cpu/int8_books.o: override CFLAGS += $(VBMI)
$(BUILD)/cpu/int16_attend.vnni.o: cpu/int16_attend.c Makefile $(BUILD)/config
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -DQUILL_SIMD=512 -c -o $@ $<
$(patsubst %.c,$(BUILD)/%.o,$(wildcard cpu/bf16_*.c)): override CFLAGS += $(SIMD) $(BF16)
$(patsubst %.c,$(BUILD)/%.o,$(wildcard cpu/amx*.c)): override CFLAGS += $(SIMD) $(AMX)
$(BUILD)/%.o: %.cu $(BUILD)/cuda.choice Makefile
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) $(or $(CODE_$(*F)),$(CUDA_CODE)) -c -o $@ $<
$(BUILD)/cuda.choice: FORCE
	$(call stamp,$(NVCC) $(NVFLAGS) $(CUDA_CODE) $(CODE_flash_sm90))
# The assembler includes the model; the stamp file changes when another model is chosen.
$(BUILD)/files/builtin.o: files/builtin.c $(MODEL) $(BUILD)/builtin.model Makefile $(BUILD)/config
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(if $(MODEL),-DQUILL_BUILTIN='"$(MODEL)"' -DQUILL_BUILTIN_NAME='"$(basename $(notdir $(MODEL)))"') -c -o $@ $<
$(BUILD)/builtin.model: FORCE
	$(call stamp,$(MODEL))
$(MODEL):
	@echo "$@: the model to build in expected, no such file found; make NO_MODEL=1 builds quill without one" >&2; exit 1
FORCE:

# ---- tests: `make test` runs all; `make test_sampler` and `make repl.bats` run one file ----
# QUILL_TEST_DATA=DIR adds tests with outside models, golden logits and vocabularies.
$(BUILD)/tests/rig.a: $(RIGS:%.c=$(BUILD)/%.o)
	@rm -f $@ && $(AR) rcsT $@ $^
$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(BUILD)/tests/rig.a $(BUILD)/quill.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)
$(BUILD)/tests/make_tiny $(BUILD)/tests/masks: $(BUILD)/tests/%: $(BUILD)/tests/rig/%.o $(BUILD)/tests/rig.a $(BUILD)/quill.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
# The GPU's kernels run on the CPU (tests/rig/gpu_host.cpp), and the backend above them with a twin of its runtime.
# quill_twin is the whole program built in this way.
HOSTFLAGS = $(filter-out -std=c11 -Wvla,$(CFLAGS)) -std=c++17
TWIN_OBJS = $(CUDA_BACKEND:%.c=$(BUILD)/%.o) $(patsubst %,$(BUILD)/%.o,kernels_host gpu/flash_sm90_host tests/rig/gpu_host tests/rig/gpu_rt_host)
$(BUILD)/twin.a: $(OBJS) $(TWIN_OBJS) $(BUILD)/objects
	@rm -f $@ && $(AR) rcsT $@ $(filter %.o,$^)
GPU_TESTS := $(filter test_cuda% test_gpu_%,$(TESTS))
$(GPU_TESTS:%=$(BUILD)/tests/%): $(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(BUILD)/tests/rig/gpu_memory_host.o $(BUILD)/tests/rig.a $(BUILD)/twin.a
	$(CXX) $(HOSTFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)
$(BUILD)/tests/test_shim: $(BUILD)/tests/test_shim.o $(BUILD)/tests/rig/shim_kernels_host.o $(BUILD)/twin.a
	$(CXX) $(HOSTFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)
$(BUILD)/tests/quill_twin: $(BUILD)/main.o $(BUILD)/twin.a
	$(CXX) $(HOSTFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/%.o: %.cpp Makefile $(BUILD)/config
	@mkdir -p $(@D)
	$(CXX) $(HOSTFLAGS) -c -o $@ $<
$(BUILD)/%_host.o: %.cu Makefile $(BUILD)/config
	@mkdir -p $(@D)
	$(CXX) $(HOSTFLAGS) -include tests/rig/gpu_host.h -x c++ -c -o $@ $<
# The tests of the kernels for a real GPU: tests/test_gpu_X.c built as tests/gpu_X; gpu_check.sh runs them.
KERNEL_TESTS := $(patsubst test_%,$(BUILD)/tests/%,$(filter test_gpu_%,$(TESTS)))
$(KERNEL_TESTS): $(BUILD)/tests/%: $(BUILD)/tests/test_%.o $(BUILD)/tests/rig/gpu_memory.o $(BUILD)/tests/rig.a $(BUILD)/quill.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call static,cmocka) $(LIBS)
$(BUILD)/tests/try_flash: tests/try_flash.cu $(wildcard gpu/*.cuh gpu/*.h) $(BUILD)/cuda.choice
	$(NVCC) $(NVFLAGS) $(SM90A) -o $@ $<
gpu-tests: $(if $(NVCC),quill $(KERNEL_TESTS) $(TRY_FLASH)) ## builds what scripts/gpu_check.sh runs on a GPU; needs only nvcc
	$(if $(NVCC),@:,@echo "gpu-tests: nvcc, of the CUDA toolkit, expected, found none: CUDA_HOME says where it is" >&2; exit 1)
.PRECIOUS: $(BUILD)/%.o $(BUILD)/%_host.o $(BUILD)/tests/test_% $(BUILD)/tests/fuzz_%

# Each test has its own scratch directory, so that tests can run in parallel; its output is in $(BUILD)/tests/NAME.log.
long_first = $(filter $(1),$(LONG)) $(filter-out $(LONG),$(1))
unit: $(call long_first,$(TESTS)) ## only the unit tests
$(TESTS): %: $(BUILD)/tests/%
	@QUILL_TEST_TMP="$(abspath $(BUILD))/tmp/$@" scripts/run_test.sh $@ $(BUILD)/tests/$@.log $(RUNNER) $<
# A preloaded library that makes one system call or allocation of a program fail; it does not work with sanitizers.
$(BUILD)/tests/faults.so: tests/rig/faults.c Makefile
	@mkdir -p $(@D)
	$(CC) -O1 -Wall -Wextra -std=gnu11 -shared -fPIC -o $@ $< -ldl
FAULTS = $(if $(SANITIZE),,$(BUILD)/tests/faults.so)
PROGRAMS = $(BUILD)/quill $(BUILD)/tests/make_tiny $(BUILD)/tests/quill_twin $(FAULTS)
cli: $(call long_first,$(BATS)) ## only the command-line tests
$(BATS): %.bats: $(PROGRAMS)
	@QUILL_TEST_TMP= QUILL_FAULTS="$(abspath $(FAULTS))" QUILL_TWIN_BINARY="$(abspath $(BUILD))/tests/quill_twin" \
		QUILL="$(abspath $(BUILD))/quill" MAKE_TINY="$(abspath $(BUILD))/tests/make_tiny" \
		scripts/run_test.sh $@ $(BUILD)/tests/$@.log bats tests/$@
test-build: $(TESTS:%=$(BUILD)/tests/%) $(PROGRAMS) # builds all test programs
# Checks of the GPU's kernels that need only nvcc and no GPU.
$(BUILD)/tests/kernels.cubin: kernels.cu $(wildcard gpu/*.cuh gpu/*.h formats/*.h base/*.h) kernels.h layer.h sampling.h kv/kvpool.h $(BUILD)/cuda.choice Makefile
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -I. -O3 -arch=sm_90 -Xptxas -v -cubin -o $@ $< 2>$@.report || { cat $@.report >&2; exit 1; }
$(BUILD)/tests/flash_sm90.cubin: gpu/flash_sm90.cu $(wildcard gpu/*.cuh gpu/*.h) $(BUILD)/cuda.choice Makefile
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -I. -O3 $(SM90A) -Xptxas -v -cubin -o $@ $< 2>$@.report || { cat $@.report >&2; exit 1; }
gpu-code: $(if $(NVCC),$(BUILD)/tests/kernels.cubin $(BUILD)/tests/flash_sm90.cubin) # no spills, 16-byte loads
	scripts/check_gpu_code.sh $(if $(NVCC),$< $<.report $(BUILD)/tests/flash_sm90.cubin.report)
ifeq ($(NVCC),)
	@echo "skipped the check of the kernels' machine code: it needs nvcc, of the CUDA toolkit"
endif
house: ## checks includes, names and sizes of sources against CONTRIBUTING.md
	scripts/check_house.py
test: quill house $(call long_first,$(BATS) $(TESTS)) gpu-code fuzz-short ## all tests; make -j2 test runs two at a time
	@echo "all tests passed"

# Tests with sanitizers, and with injected failures.
CHECKED = CFLAGS="-O1 -g" SIMD="-O1 -ffp-contract=fast"
ASAN    = BUILD=build/asan $(CHECKED) SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
asan: ## unit and command-line tests under AddressSanitizer and UBSan
	$(MAKE) unit cli $(ASAN)

RIG = --quill $(BUILD)/quill --make-tiny $(BUILD)/tests/make_tiny
faults: $(BUILD)/quill $(BUILD)/tests/make_tiny $(BUILD)/tests/faults.so ## makes every call that can fail do so once, in every mode
	python3 tests/rig/faults.py $(RIG) --preload $(BUILD)/tests/faults.so
tsan: ## tests with threads, under ThreadSanitizer
	$(MAKE) unit tsan-run NO_CUDA=1 BUILD=build/tsan $(CHECKED) SANITIZE="-fsanitize=thread" \
		TESTS="test_threads test_hugepages test_scheduler test_kvstore test_conversation test_blend test_blend_loading"
tsan-run: $(BUILD)/quill $(BUILD)/tests/make_tiny # the program itself, with every instruction set
	for isa in scalar portable auto; do python3 tests/rig/soak.py $(RIG) --threads 4 --isa $$isa --jobs 100 --turns 20 --growth 64 || exit 1; done
soak: $(BUILD)/quill $(BUILD)/tests/make_tiny ## 5,000 random jobs and chats of 2,000 turns, checks that memory does not grow; 2,000 jobs under the sanitizers; perplexity in all types
	python3 tests/rig/soak.py $(RIG)
	QUILL_SOAK=1 QUILL="$(abspath $(BUILD))/quill" MAKE_TINY="$(abspath $(BUILD))/tests/make_tiny" bats -f "every type of weights" tests/cli.bats
	$(MAKE) build/asan/tests/test_batch $(ASAN)
	QUILL_SOAK=2000 QUILL_TEST_TMP="$(CURDIR)/build/asan/tmp" build/asan/tests/test_batch

# ---- 64-bit ARM: cross-compiled, run under qemu-user ----
# Needs gcc-aarch64-linux-gnu, qemu-user and the arm64 packages of the libraries: installed (dpkg --add-architecture
# arm64), or unpacked under ARM64_ROOT (scripts/arm64_root.sh DIR).
ARM64     := aarch64-linux-gnu
ARM64_LIB := $(ARM64_ROOT)/usr/lib/$(ARM64)
ARM64_CC  := $(ARM64)-gcc $(if $(ARM64_ROOT),-B$(ARM64_LIB) -isystem $(ARM64_ROOT)/usr/include -isystem $(ARM64_ROOT)/usr/include/$(ARM64))
arm64: ## the unit tests on 64-bit ARM, including the portable kernels; without the tests of GPU code
	$(MAKE) unit BUILD=build/arm64 CC="$(CCACHE) $(ARM64_CC)" NO_CUDA=1 RUNNER="qemu-aarch64 -L /usr/$(ARM64) -E LD_LIBRARY_PATH=$(ARM64_LIB)" \
		TESTS="$(filter-out $(GPU_TESTS) test_shim,$(TESTS))"

# ---- fuzzing: needs clang, which has libFuzzer ----
FUZZ_SECONDS ?= 300
HAS_FUZZER := $(shell command -v clang >/dev/null 2>&1 && echo 'int LLVMFuzzerTestOneInput(const char*d,long n){return d&&n<0;}' | clang -x c -fsanitize=fuzzer -o /dev/null - 2>/dev/null && echo yes)
# The sources that fuzzers link: the directories that read files and texts, and readers in other directories.
READERS := $(wildcard $(foreach r,base formats files hf hub tokens grammar jinja load term cli,$r/*.c)) $(addsuffix .c,families model_load tokenizer sampler kv/kvframes kv/kvrows kv/kvshape kv/kvstates answer/candidates answer/file_sampling answer/messages answer/transcript answer/chat_template answer/builtin_templates answer/tools answer/call_format answer/call_read answer/call_value answer/marks batch/jobs)
FUZZ_BUILD = --no-print-directory BUILD=build/fuzz NO_CUDA=1 MACHINE=none VECTOR= SOURCES="$(READERS)" CC="$(strip $(filter ccache,$(CC)) clang)" CFLAGS="-O1 -g" SANITIZE="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all"
fuzz-build:
	$(MAKE) $(FUZZ_BUILD) $(FUZZ:%=build/fuzz/tests/%)
$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz_%.o $(BUILD)/quill.a
	$(CC) $(CFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LIBS)
# Small models of some families, for fuzz_gguf to begin with: it would not find their tensors by itself. MAKE_TINY is of
# another build.
SEEDS := llama qwen2moe qwen3moe llama4 gpt-oss granitehybrid lfm2moe
fuzz_gguf: seeds = $(if $(MAKE_TINY),for arch in $(SEEDS); do $(MAKE_TINY) $(BUILD)/seed.gguf arch=$$arch type=Q4_0 dim=32 n_heads=2 n_kv_heads=1 head_dim=16 ffn=32 n_experts=4 && { printf '\0'; cat $(BUILD)/seed.gguf; } >$(BUILD)/corpus/fuzz_gguf/$$arch || exit 1; done)
# One fuzzer, built with the words of FUZZ_BUILD; build/fuzz/corpus keeps its corpus between runs.
$(FUZZ): fuzz_%: $(BUILD)/tests/fuzz_%
	@mkdir -p $(BUILD)/corpus/$@
	@$(seeds)
	@QUILL_TEST_TMP= scripts/run_test.sh $@ $(BUILD)/tests/$@.log sh -c 'cd $(BUILD) && tests/$@ -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 corpus/$@'
fuzz: $(BUILD)/tests/make_tiny ## runs each fuzzer for FUZZ_SECONDS (300); -j2 runs two at a time
	$(MAKE) $(FUZZ_BUILD) MAKE_TINY=$(abspath $<) $(FUZZ)
fuzz-short: $(BUILD)/tests/make_tiny
ifeq ($(HAS_FUZZER),yes)
	$(MAKE) $(FUZZ_BUILD) MAKE_TINY=$(abspath $<) $(FUZZ) FUZZ_SECONDS=5
else
	@echo "skipped fuzzing: it needs clang with libFuzzer (libclang-rt)"
endif

# ---- other targets ----
format: ## formats all sources with clang-format
	git ls-files "*.c" "*.h" "*.cpp" "*.cu" "*.cuh" | xargs clang-format -i
# The binary itself prints the man page and the completions.
$(BUILD)/quill.1: $(BUILD)/quill
	$< --man >$@
$(BUILD)/completion.%: $(BUILD)/quill
	$< --completions $* >$@
PAGE     := share/man/man1/quill.1
FOR_BASH := share/bash-completion/completions/quill
FOR_ZSH  := share/zsh/site-functions/_quill
FOR_FISH := share/fish/vendor_completions.d/quill.fish
# The installed file $(1), quoted for the shell: paths may have spaces. A quoted ~/ is expanded here.
home   = $(if $(filter ~/%,$(firstword $(1))),$(patsubst ~/%,$(HOME)/%,$(1)),$(1))
placed = '$(subst ','\'',$(call home,$(DESTDIR))$(call home,$(PREFIX)))/$(1)'
install: quill $(BUILD)/quill.1 $(BUILD)/completion.bash $(BUILD)/completion.zsh $(BUILD)/completion.fish ## PREFIX=/usr/local DESTDIR=
	install -D -s -m 755 quill $(call placed,bin/quill)
	install -D -m 644 $(BUILD)/quill.1 $(call placed,$(PAGE))
	install -D -m 644 $(BUILD)/completion.bash $(call placed,$(FOR_BASH))
	install -D -m 644 $(BUILD)/completion.zsh $(call placed,$(FOR_ZSH))
	install -D -m 644 $(BUILD)/completion.fish $(call placed,$(FOR_FISH))
uninstall: ## removes what install has installed
	rm -f $(foreach file,bin/quill $(PAGE) $(FOR_BASH) $(FOR_ZSH) $(FOR_FISH),$(call placed,$(file)))
deps: ## installs missing packages (Debian, Ubuntu)
	scripts/deps.sh
clean: ## removes what was built
	rm -rf build quill
# Ignores QUILL_MODEL of the environment.
demo: export QUILL_MODEL :=
demo: quill ## generates a story with the built-in model
	./quill --no-config --raw --echo --verbose -n 200 --temp 0.8 "Once upon a time" </dev/null
# Prints the first sentence of each file; for X.c and X.h that of the header.
files: ## lists every source file with its first sentence
	@awk 'FNR == 1 { if (text != "") print text; text = ""; open = !/: see [a-z0-9_\/]*\.h\.?/ } \
		open && /^\/\/ / { text = text (text == "" ? "" : " ") substr($$0, 4); if (/\.$$/) open = 0; next } { open = 0 } \
		END { if (text != "") print text }' $(sort $(wildcard *.[ch] *.cu)) $(sort $(wildcard $(foreach r,$(ROOMS),$r/*.[ch] $r/*.cuh)))
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

.PHONY: files $(TESTS) $(BATS) $(FUZZ) house unit cli gpu-code gpu-tests test-build test asan faults tsan tsan-run soak arm64 fuzz fuzz-build fuzz-short format install uninstall deps clean demo help FORCE
-include $(wildcard $(BUILD)/*.d $(BUILD)/*/*.d $(BUILD)/tests/rig/*.d)
