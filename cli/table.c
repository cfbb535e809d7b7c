// cli/table.c: see cli/table.h. Each row is an option; parsing and all documentation of options use these rows.
#include "cli/table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "formats/kv_types.h"
#include "policy/drafters.h"
#include "sampler.h"

// ---- the table ------------------------------------------------------------------------------------------------------

#define M(mode) MODE_BIT(mode)
#define AT(field) offsetof(Options, field)
#define TEXT_OF_TOKENS(x) #x
#define TEXT_OF(macro) TEXT_OF_TOKENS(macro)

// clang-format off
const Option cli_options[] = {
    // names (short first, hidden aliases last), argument, modes, group, kind, where, least, most, default, help
    {"-m --model", "FILE", MODES_FILE, G_MODEL, TEXT, AT(engine.model), 0, 0, NULL, "model by file or name: GGUF, a Hugging Face directory, llama2.c .bin (see -z), or a name of quill models (environment: QUILL_MODEL); builtin, the default: the model in the binary (--version names it)"},
    {"-hf --hf-repo -hfr", "USER/REPO[:TYPE]", MODES_FILE, G_MODEL, TEXT, AT(hub.repo), 0, 0, NULL, "a model of the Hugging Face Hub, fetched if the cache does not have it (quill pull); without TYPE: Q4_K_M, else Q8_0, else safetensors"},
    {"--offline", NULL, MODES_FILE | M(PULL), G_MODEL, FLAG, AT(hub.offline), 0, 0, NULL, "make no requests to the Hub, use only the cache (environment: HF_HUB_OFFLINE)"},
    {"-y --yes", NULL, M(MODELS), G_MODEL, FLAG, AT(hub.yes), 0, 0, NULL, "rm: remove without asking"},
    {"--names", NULL, M(MODELS), G_LOOK, FLAG, AT(hub.names), 0, 0, NULL, "print only the names, one per line"},
    {"-z --tokenizer", "FILE", MODES_FILE | M(QUANTIZE), G_MODEL, TEXT, AT(engine.tokenizer), 0, 0, NULL, "tokenizer.bin of a llama2.c model; by default the one in the model's directory"},
    {"--no-mmap", NULL, MODES_FILE, G_MODEL, FLAG, AT(engine.no_mmap), 0, 0, NULL, "read the model into memory instead of mapping it"},
    {"--mlock", NULL, MODES_COMPUTE, G_MODEL, FLAG, AT(engine.mlock), 0, 0, NULL, "keep the model's pages in memory (as far as the system allows)"},
    {"--check-tensors", NULL, MODES_PROMPT | MODES_ANSWER | M(INSPECT) | M(PERPLEXITY) | M(LOGITS), G_MODEL, FLAG, AT(engine.check_tensors), 0, 0, NULL, "read every weight first and refuse a model with one that is not finite"},

    {"-p --prompt", "TEXT", MODES_TEXT, G_PROMPT, PROMPT_TEXT, 0, 0, 0, NULL, "the prompt; words without a flag are the same; may be repeated"},
    {"-f --file", "FILE", M(BATCH), G_PROMPT, INPUT, AT(input), 0, 0, NULL, "the jobs from a file instead of stdin; the same as a word without a flag"},
    {"-f --file", "FILE", M(TEMPLATE), G_PROMPT, INPUT, AT(input), 0, 0, NULL, "the messages from a file instead of stdin"},
    {"-f --file", "FILE", MODES_TEXT, G_PROMPT, PROMPT_FILE, 0, 0, 0, NULL, "text from a file, byte for byte; - is stdin; may be repeated"},
    {"-sys --system-prompt", "TEXT", MODES_PROMPT | M(BATCH), G_PROMPT, TEXT, AT(answer.system), 0, 0, NULL, "a system message (models with a chat template)"},
    {"-sysf --system-prompt-file", "FILE", MODES_PROMPT | M(BATCH), G_PROMPT, TEXT, AT(answer.system_file), 0, 0, NULL, "a system message from a file"},
    {"-e --escape", NULL, MODES_TEXT, G_PROMPT, FLAG, AT(prompt.escape), 0, 0, NULL, "interpret \\n \\t \\r \\\\ \\' \\\" \\xHH \\NNN in -p and words, as in C"},
    {"--raw", NULL, MODES_PROMPT | MODES_ANSWER, G_PROMPT, FLAG, AT(answer.raw), 0, 0, NULL, "complete the bare text, without the model's chat template"},
    {"--chat", NULL, MODES_PROMPT | M(DECODE), G_PROMPT, FLAG, AT(answer.chat), 0, 0, NULL, "use the model's chat template; an error if it has none"},
    {"--single-turn", NULL, M(RUN), G_PROMPT, FLAG, AT(chat.single_turn), 0, 0, NULL, "answer once and exit, even on a terminal or with -i"},
    {"-i --interactive", NULL, M(RUN), G_PROMPT, FLAG, AT(chat.interactive), 0, 0, NULL, "chat line by line; a prompt given is the first turn"},
    {"--continue", NULL, M(RUN), G_PROMPT, FLAG, AT(answer.continue_last), 0, 0, NULL, "continue the last conversation that was saved with this model, and save it"},
    {"--load", "FILE", M(RUN), G_PROMPT, TEXT, AT(answer.load), 0, 0, NULL, "continue a conversation that /save wrote, in a chat or with one answer to the prompt; a chat also uses the saved settings, except those that flags set"},
    {"--autosave", NULL, M(RUN), G_PROMPT, FLAG, AT(answer.autosave), 0, 0, NULL, "save a chat after each turn, or an answer with its prompt, in $XDG_STATE_HOME/quill/conversations (~/.local/state/quill/conversations)"},
    {"--no-history", NULL, M(RUN), G_PROMPT, FLAG, AT(chat.no_history), 0, 0, NULL, "neither read nor write the history of chats (environment: QUILL_HISTORY names the file, empty: none)"},
    {"--parse-special", NULL, MODES_TEXT, G_PROMPT, FLAG, AT(answer.parse_special), 0, 0, NULL, "recognise control tokens in raw text"},
    {"--no-stdin", NULL, MODES_TEXT, G_PROMPT, FLAG, AT(prompt.no_stdin), 0, 0, NULL, "never read stdin"},
    {"--tokens", "ID,ID,...", M(LOGITS), G_PROMPT, TEXT, AT(look.tokens), 0, 0, NULL, "token ids instead of text; blanks may separate them, as quill tokenize --ids prints them"},
    {"--ids", NULL, M(TOKENIZE), G_PROMPT, FLAG, AT(look.ids), 0, 0, NULL, "print only the ids, separated by spaces"},
    {"--no-bos", NULL, M(LOGITS) | M(PERPLEXITY), G_PROMPT, FLAG, AT(look.no_bos), 0, 0, NULL, "do not put the beginning token in front of text"},
    {"--no-bos", NULL, M(TOKENIZE), G_PROMPT, FLAG, AT(look.no_bos), 0, 0, NULL, "no beginning token in front of the text, and no end token after it"},
    {"--chat-template", "NAME", MODES_PROMPT | MODES_ANSWER | M(TEMPLATE), G_PROMPT, TEXT, AT(answer.chat_template), 0, 0, NULL, "one of quill's own templates instead of the model's: chatml, llama2, llama3, mistral-v7, gemma, ... (a wrong name lists them)"},
    {"--chat-template-file", "FILE", MODES_PROMPT | MODES_ANSWER | M(TEMPLATE), G_PROMPT, TEXT, AT(answer.chat_template_file), 0, 0, NULL, "a chat template from a file, in Jinja"},
    {"--think", "on|off|low|medium|high|show|hide", MODES_PROMPT | MODES_ANSWER | M(TEMPLATE), G_PROMPT, CHOICE, AT(answer.think), 0, 0, NULL, "whether the model thinks: on, off, and how much: low, medium, high, if its template has such a switch; whether its thoughts are printed: show, hide (by default on a terminal and in JSON)"},
    {"--bos", "TEXT", M(TEMPLATE), G_PROMPT, TEXT, AT(look.bos), 0, 0, NULL, "the template's bos_token, instead of the model's"},
    {"--eos", "TEXT", M(TEMPLATE), G_PROMPT, TEXT, AT(look.eos), 0, 0, NULL, "the template's eos_token, instead of the model's"},
    {"--now", "TIME", M(TEMPLATE), G_PROMPT, TEXT, AT(look.now), 0, 0, NULL, "the time that strftime_now gives, as 2026-01-02T03:04:05"},
    {"--no-generation-prompt", NULL, M(TEMPLATE), G_PROMPT, FLAG, AT(look.no_generation_prompt), 0, 0, NULL, "leave out the beginning of the assistant's answer"},

    {"-n --predict --n-predict --max-tokens --max-completion-tokens", "N", MODES_ANSWER, G_LENGTH, INT, AT(answer.predict), -1, INT_MAX, "-1", "tokens to generate; -1: until the end, or a full context"},
    {"-c --ctx-size", "N", M(PERPLEXITY), G_LENGTH, INT, AT(engine.ctx_size), 0, (1 << 30) - 1, "0", "tokens of a chunk; 0: 512, or what the model was trained for if that is less"},
    {"-c --ctx-size", "N", MODES_PROMPT | MODES_ANSWER | M(LOGITS) | M(CHUNK), G_LENGTH, INT, AT(engine.ctx_size), 0, (1 << 30) - 1, "0", "context in tokens; 0: the model's, if it fits into memory"},
    {"--ignore-eos", NULL, MODES_ANSWER, G_LENGTH, FLAG, AT(answer.ignore_eos), 0, 0, NULL, "never generate an end-of-generation token"},
    {"-r --stop --reverse-prompt", "TEXT", MODES_ANSWER, G_LENGTH, STOPS, AT(answer.stop), 0, 0, NULL, "stop before this text; may be repeated"},

    {"--temp --temperature", "T", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.temp), 0, SAMPLER_MOST_TEMP, TEXT_OF(SAMPLER_TEMP), "temperature; 0 is greedy"},
    {"--top-k", "N", MODES_ANSWER, G_SAMPLING, INT, AT(answer.sampling.top_k), 0, INT_MAX, TEXT_OF(SAMPLER_TOP_K), "only the N most likely tokens; 0: all"},
    {"--top-p", "P", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.top_p), 0, 1, TEXT_OF(SAMPLER_TOP_P), "only the most likely tokens that make up P; 1: off"},
    {"--min-p", "P", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.min_p), 0, 1, TEXT_OF(SAMPLER_MIN_P), "only tokens at least P times as likely as the first; 0: off"},
    {"--typical --typical-p", "P", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.typical), 0, 1, "1", "locally typical sampling; 1: off"},
    {"--xtc-probability", "P", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.xtc_probability), 0, 1, "0", "how often to leave out top choices"},
    {"--xtc-threshold", "P", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.xtc_threshold), 0, 1, TEXT_OF(SAMPLER_XTC_THRESHOLD), "least probability of a top choice"},
    {"--repeat-penalty", "X", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.repeat_penalty), 1.0 / SAMPLER_MOST_PENALTY, SAMPLER_MOST_PENALTY, "1", "divide the logits of recent tokens by X; 1: off"},
    {"--repeat-last-n", "N", MODES_ANSWER, G_SAMPLING, INT, AT(answer.sampling.repeat_last_n), -1, INT_MAX, TEXT_OF(SAMPLER_REPEAT_LAST_N), "tokens that penalties see; -1: all"},
    {"--presence-penalty", "X", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.presence_penalty), -100, 100, "0", "subtracted once if a token occurred"},
    {"--frequency-penalty", "X", MODES_ANSWER, G_SAMPLING, REAL, AT(answer.sampling.frequency_penalty), -100, 100, "0", "subtracted for each time it occurred"},
    {"--logit-bias", "ID+B|ID-B", MODES_ANSWER, G_SAMPLING, BIAS, AT(answer.sampling.bias), 0, 0, NULL, "added to a token's logit (ID-inf forbids it); may be repeated"},
    {"-s --seed", "N", MODES_ANSWER, G_SAMPLING, SEED, AT(answer.sampling.seed), 0, 0, "-1", "random seed; -1: from the system, shown by -v and --json"},
    {"--greedy", NULL, MODES_ANSWER, G_SAMPLING, FLAG, AT(answer.sampling.greedy), 0, 0, NULL, "always the most likely token"},

    {"--beams --num-beams", "N", M(RUN) | M(BATCH), G_SEARCH, INT, AT(answer.beams), 1, 128, NULL, "beam search: find the most likely text by extending the N best beginnings in parallel; nothing is sampled, and the text is shown at the end; --json has all N texts with their scores"},
    {"--length-penalty", "X", M(RUN) | M(BATCH), G_SEARCH, REAL, AT(answer.length_penalty), -100, 100, "1", "a beam's score is the sum of its tokens' log-probabilities over their number to the power of X: above 0 favours long texts, 0 and below short ones"},
    {"--early-stopping", "false|true|never", M(RUN) | M(BATCH), G_SEARCH, CHOICE, AT(answer.early_stopping), 0, 0, "false", "when the search ends once N texts are complete; false: when no beam scores better as it is; true: at once; never: when no beam can become better"},
    {"--best-of", "N", M(RUN) | M(BATCH), G_SEARCH, INT, AT(answer.best_of), 1, 128, NULL, "draw N answers and show the one whose tokens have the highest mean log-probability, once all are complete; --json has all of them"},
    {"-j --json-schema", "TEXT", MODES_ANSWER, G_FORM, TEXT, AT(answer.form.schema), 0, 0, NULL, "the answer is JSON that this JSON Schema admits (docs/structured.md)"},
    {"-jf --json-schema-file", "FILE", MODES_ANSWER, G_FORM, TEXT_FILE, AT(answer.form.schema_file), 0, 0, NULL, "a JSON Schema from a file"},
    {"--json-object", NULL, MODES_ANSWER, G_FORM, FLAG, AT(answer.form.object), 0, 0, NULL, "the answer is a JSON object"},
    {"--regex", "R", MODES_ANSWER, G_FORM, TEXT, AT(answer.form.regex), 0, 0, NULL, "the whole answer matches this regular expression"},
    {"--choice", "TEXT,TEXT,...", MODES_ANSWER, G_FORM, TEXT, AT(answer.form.choice), 0, 0, NULL, "the answer is one of these texts; \\, is a comma in one"},
    {"--grammar", "TEXT", MODES_ANSWER, G_FORM, TEXT, AT(answer.form.grammar), 0, 0, NULL, "the answer follows a grammar in llama.cpp's notation (GBNF)"},
    {"--grammar-file", "FILE", MODES_ANSWER, G_FORM, TEXT_FILE, AT(answer.form.grammar_file), 0, 0, NULL, "a grammar (GBNF) from a file"},
    {"--tools", "FILE", MODES_ANSWER, G_FORM, TEXT_FILE, AT(answer.tools.file), 0, 0, NULL, "functions that the answer may call, in OpenAI's JSON; calls follow their schemas (docs/structured.md)"},
    {"--tool-choice", "auto|none|required|NAME", MODES_ANSWER, G_FORM, TEXT, AT(answer.tools.choice), 0, 0, NULL, "auto: text or calls; none: no call; required: calls alone; NAME: one call of this function"},

    {"-t --threads", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench.threads), -1, 1024, "0", "threads, every test with each number; 0 or -1: one for each physical core"},
    {"-t --threads", "N", (MODES_COMPUTE & ~M(BENCH)) | M(QUANTIZE), G_SPEED, INT, AT(engine.threads), -1, 1024, "0", "threads; 0 or -1: one for each physical core"},
    {"-ngl --gpu-layers --n-gpu-layers", "auto|all|N", MODES_COMPUTE, G_SPEED, LAYERS, AT(engine.gpu_layers), 0, INT_MAX, "auto", "the last N layers on the GPU; auto: as many as fit"},
    {"-cmoe --cpu-moe", NULL, MODES_COMPUTE, G_SPEED, FLAG, AT(engine.cpu_moe), 0, 0, NULL, "experts of all layers stay on the CPU, whatever else of a layer is on the GPU"},
    {"-ncmoe --n-cpu-moe", "N", MODES_COMPUTE, G_SPEED, INT, AT(engine.n_cpu_moe), 0, INT_MAX, "0", "experts of the first N layers stay on the CPU"},
    {"--device", "auto|cuda|cpu", MODES_COMPUTE, G_SPEED, CHOICE, AT(engine.device), 0, 0, "auto", "where to compute; auto: on a GPU, where there is one and the model is not small (environment: QUILL_DEVICE)"},
    {"--isa", "auto|scalar|portable|avx2|avxvnni|avx512|amx", MODES_COMPUTE, G_SPEED, CHOICE, AT(engine.isa), 0, 0, "auto", "CPU kernels; scalar is the reference"},
    {"-ub --ubatch-size", "N", MODES_COMPUTE, G_SPEED, INT, AT(engine.ubatch), 1, 65536, NULL, "rows in one step: the prefill chunk and the batch's budget (512 on the CPU, 2048 on a GPU)"},
    {"-ctk --cache-type-k", "auto" KV_TYPE_CHOICES, MODES_COMPUTE, G_SPEED, KVTYPE, AT(engine.type_k), 0, 0, "auto", "how the KV cache stores keys; auto: f16, and f32 for models in F32; fp8, q8_0, q4_0 and kivi2 (2 bits) take less memory and round"},
    {"-ctv --cache-type-v", "auto" KV_TYPE_CHOICES, MODES_COMPUTE, G_SPEED, KVTYPE, AT(engine.type_v), 0, 0, "auto", "how the KV cache stores values"},
    {"--kv-rotate", NULL, MODES_COMPUTE, G_SPEED, FLAG, AT(engine.kv_rotate), 0, 0, NULL, "multiply keys and queries by a Hadamard matrix, which reduces the rounding errors of keys in few bits"},
    {"--deterministic", NULL, MODES_COMPUTE, G_SPEED, FLAG, AT(engine.deterministic), 0, 0, NULL, "give the same bits for any batch and any number of threads: one order of sums in the CPU's fast kernels; slower (docs/performance.md)"},

    {"-md --speculate", "ngram|mtp|FILE|ngram,mtp|ngram,FILE", M(RUN) | M(DECODE) | M(BATCH) | M(BENCH), G_SPEED, TEXT, AT(engine.speculate), 0, 0, NULL, "guess and verify tokens in one step; the text stays the same. ngram: from earlier text; mtp: by the prediction head in the file; FILE: by a small model (file, name, builtin) of the same vocabulary"},
    {"--draft-max", "N", M(RUN) | M(DECODE) | M(BATCH) | M(BENCH), G_SPEED, INT, AT(engine.draft_max), 1, DRAFT_MOST, TEXT_OF(DRAFT_MAX), "the most guessed tokens in a step"},
    {"--draft-min", "N", M(RUN) | M(DECODE) | M(BATCH) | M(BENCH), G_SPEED, INT, AT(engine.draft_min), 0, DRAFT_MOST, "0", "leave out guesses of fewer tokens"},
    {"--draft-p-min", "P", M(RUN) | M(DECODE) | M(BATCH) | M(BENCH), G_SPEED, REAL, AT(engine.draft_p_min), 0, 1, "0", "end a guess at a token less likely than P"},

    {"--kv-layout", "contiguous|paged", MODES_COMPUTE & ~M(BATCH), G_KV, LAYOUT, AT(engine.paged), 0, 0, "contiguous", "one block for each sequence, or many of --kv-block slots"},
    {"--kv-block", "N", MODES_COMPUTE, G_KV, INT, AT(engine.kv_block), 1, 65536, "32", "slots in a block of the paged layout, of a batch and of --kv-dir"},
    {"--kv-mem", "SIZE", MODES_COMPUTE, G_KV, SIZE, AT(engine.kv_mem), 0, 0x1p62, "0", "the most memory the KV cache may take; 0: what the context needs"},
    {"--kv-dir", "DIR[,size=8G]", M(CHUNK), G_KV, STORE, AT(engine.kv_dir), 0, 0x1p62, NULL, "the directory to which the KV of the files is added"},
    {"--kv-dir", "DIR[,size=8G]", M(RUN) | M(BATCH), G_KV, STORE, AT(engine.kv_dir), 0, 0x1p62, NULL, "keep the KV cache of prompts in this directory, up to this total size, and reuse it for prompts with the same beginning"},
    {"--evict", "POLICY", M(RUN) | M(PERPLEXITY), G_KV, TEXT, AT(engine.evict), 0, 0, NULL, "which slots a full cache frees, so that text can go on: sinks,sink=4,window=1024; shift; h2o,heavy=512,recent=512; or, after a long prompt, snapkv,cap=2048,window=32"},
    {"--kv-error", NULL, M(PERPLEXITY), G_KV, FLAG, AT(look.kv_error), 0, 0, NULL, "print the error of attention over this cache in each layer, against attention in float64 over the whole text from the same input"},
    {"--imatrix-out", "FILE", M(PERPLEXITY), G_QUANTIZE, TEXT, AT(look.imatrix_out), 0, 0, NULL, "write the mean squares of the activations that each matrix is multiplied with, for quill quantize --imatrix (llama.cpp reads it too)"},
    {"--kl-base", "FILE", M(PERPLEXITY), G_QUANTIZE, TEXT, AT(look.kl_base), 0, 0, NULL, "write the logits of every scored token (four bytes a token of the vocabulary), for --kl"},
    {"--kl", "FILE", M(PERPLEXITY), G_QUANTIZE, TEXT, AT(look.kl), 0, 0, NULL, "compare the predictions with those that another model wrote with --kl-base for the same text: Kullback-Leibler divergence, and how often the most likely token is the same"},
    {"--chunk", "FILE", M(RUN), G_KV, FILES, 0, 0, 0, NULL, "a text in front of the prompt whose KV is computed once, independently of other text, and reused (docs/blend.md); may be repeated"},
    {"--chunk-split", "TEXT", M(CHUNK), G_KV, TEXT, AT(answer.chunk_split), 0, 0, NULL, "cut each file into chunks at this text"},
    {"--chunk-split", "TEXT", M(RUN), G_KV, TEXT, AT(answer.chunk_split), 0, 0, NULL, "cut each file of --chunk into chunks at this text"},
    {"--blend", "MODE[,ratio=R][,k=N][,gradual=G]", M(RUN) | M(BATCH), G_KV, TEXT, AT(answer.blend), 0, 0, NULL, "which tokens of the chunks are computed again: cacheblend,ratio=0.15, the share whose KV differs most (the default); epic,k=16, the first tokens of each; reuse, none; full, all"},
    {"--blend-error", NULL, M(RUN), G_KV, FLAG, AT(answer.blend_error), 0, 0, NULL, "after the answer, print the error of the chunks' K and V in each layer, against the prompt computed as a whole"},
    {"--context-shift", NULL, M(RUN), G_KV, FLAG, AT(answer.context_shift), 0, 0, NULL, "when a chat fills the context, drop its oldest turns, with a note"},
    {"--kv-out", "FILE", M(PREFILL), G_KV, TEXT, AT(kv.out), 0, 0, NULL, "where the KV is written: a file, which appears only when it is complete, a pipe, or - for stdout"},
    {"--kv-out", "FILE", M(KV), G_KV, TEXT, AT(kv.out), 0, 0, NULL, "cut: the file to write; - for stdout"},
    {"--kv-in", "FILE", M(DECODE), G_KV, TEXT, AT(kv.in), 0, 0, NULL, "the KV of quill prefill or of a chat's /save --kv; - for stdin"},
    {"-n", "N", M(KV), G_KV, INT, AT(kv.n_tokens), 1, INT_MAX, NULL, "cut: tokens to keep"},
    {"--tolerance", "R", M(KV), G_KV, REAL, AT(kv.tolerance), 0, 1e9, "0", "diff: the largest relative L2 distance of a layer's K or V that counts as equal; above it, and if tokens or shapes differ, the exit code is 1"},

    {"-np --parallel", "N", M(BATCH), G_BATCH, INT, AT(batch.parallel), 1, 4096, "64", "the most sequences at once; memory, -ub and the number of jobs may allow fewer"},
    {"--keep-order", NULL, M(BATCH), G_BATCH, FLAG, AT(batch.keep_order), 0, 0, NULL, "answers in the order of the jobs, not as they finish"},
    {"--rate", "R", M(BATCH), G_BATCH, REAL, AT(batch.rate), 0, 1e6, "0", "replay arrivals: R jobs a second on average, at random times (by --seed); 0: as fast as they are read"},
    {"--slo", "ttft=MS,tpot=MS", M(BATCH), G_BATCH, TEXT, AT(batch.slo), 0, 0, NULL, "the latencies to keep, in milliseconds; at the end stderr says how many jobs a second kept them (goodput)"},
    {"--resume", "FILE", M(BATCH), G_BATCH, TEXT, AT(batch.resume), 0, 0, NULL, "continue an interrupted run: FILE has its answers, their jobs are skipped, and new answers are appended to it instead of stdout"},
    {"--static", NULL, M(BATCH), G_BATCH, FLAG, AT(batch.static_batches), 0, 0, NULL, "batches of -np jobs, each run to its end before the next begins; for comparison"},

    {"-p --n-prompt", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench.prompt), 0, INT_MAX, "512", "prompt tokens of the prefill tests; 0: no such test; ranges too: 128-512+128, 1-8*2"},
    {"-n --n-gen", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench.gen), 0, INT_MAX, "128", "tokens of the decode tests; 0: no such test"},
    {"-d --n-depth", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench.depth), 0, INT_MAX, "0", "tokens that are in the context before a test begins"},
    {"--sequences -np --parallel", "N", M(BENCH), G_BENCH, INT, AT(bench.sequences), 1, 4096, "1", "sequences at once"},
    {"-r --repetitions", "N", M(BENCH), G_BENCH, INT, AT(bench.reps), 1, 100000, "5", "repetitions; the median is shown"},
    {"--shape", "NAME|k=v,...", M(BENCH), G_BENCH, TEXT, AT(bench.shape), 0, 0, NULL, "a random model: 1.1b, 1b, 8b, moe-7b-a1b, delta-1b, ssd-1b, mla-16b-a2b or dim=..,layers=..,heads=..,kv_heads=..,ffn=..,vocab=.. (and experts=..,used=..)"},
    {"--type", "TYPE", M(BENCH), G_BENCH, TEXT, AT(bench.type), 0, 0, "Q8_0", "type of its matrices"},
    {"-s --seed", "N", M(BENCH), G_BENCH, SEED, AT(answer.sampling.seed), 0, 0, "-1", "seed of its weights; -1: 1"},
    {"--save", "FILE", M(BENCH), G_BENCH, TEXT, AT(bench.save), 0, 0, NULL, "write the random model as GGUF"},
    {"-o --output", "table|json|csv|md", M(BENCH), G_BENCH, CHOICE, AT(bench.output), 0, 0, "table", "format of the results"},
    {"--ops", NULL, M(BENCH), G_BENCH, FLAG, AT(bench.ops), 0, 0, NULL, "time each operation of a decoding step separately, over all layers (-d, --sequences)"},
    {"--replay", NULL, M(BENCH), G_BENCH, FLAG, AT(bench.replay), 0, 0, NULL, "with --speculate and files OLD NEW (or more pairs): measure the gain for an edit; the prompt is OLD and the answer is forced to be NEW"},
    {"--prompt-lines", "FILE", M(BENCH), G_BENCH, TEXT, AT(bench.prompts), 0, 0, NULL, "with --speculate: prompts, one per line, to answer with -n tokens each; by default one text without a prompt"},
    {"--roofline", NULL, M(BENCH), G_BENCH, FLAG, AT(bench.roofline), 0, 0, NULL, "measure this machine's ceilings, with all processors, and store them"},

    {"--tensor", "PATTERN=TYPE,...", M(QUANTIZE), G_QUANTIZE, TEXT, AT(quantize.tensors), 0, 0, NULL, "another type for the matrices whose name matches: 'blk.*.attn_v.weight=Q8_0,output.weight=F16'; the first pattern that matches decides"},
    {"--imatrix", "FILE", M(QUANTIZE), G_QUANTIZE, TEXT, AT(quantize.imatrix), 0, 0, NULL, "importance of columns, from quill perplexity --imatrix-out or llama.cpp: reduces the rounding errors of columns that matter"},
    {"--prune", "N:M|SHARE", M(QUANTIZE), G_QUANTIZE, TEXT, AT(quantize.prune), 0, 0, NULL, "zero weights of the layers first; all but N of each M neighbours (2:4), or a share of each row (0.5)"},
    {"--prune-by", "magnitude|wanda", M(QUANTIZE), G_QUANTIZE, CHOICE, AT(quantize.by), 0, 0, "magnitude", "zero the smallest weights, or the smallest products of weight and activation norm (needs --imatrix)"},
    {"--dry-run", NULL, M(QUANTIZE), G_QUANTIZE, FLAG, AT(engine.dry_run), 0, 0, NULL, "show each tensor's type and size, and write nothing"},

    {"-v --verbose", NULL, MODES_PROMPT | MODES_ANSWER | M(LOGITS) | M(PERPLEXITY), G_LOOK, FLAG, AT(answer.verbose), 0, 0, NULL, "report on stderr what was done and how fast"},
    {"-q --quiet", NULL, MODES_COMPUTE | M(QUANTIZE) | M(PULL) | M(MODELS), G_LOOK, FLAG, AT(answer.quiet), 0, 0, NULL, "print only errors on stderr: no notes, no progress"},
    {"--color -co", "auto|always|never", M(RUN) | M(DECODE), G_LOOK, COLOR, AT(answer.color), 0, 0, "auto", "colour of the chat's prompt and of thoughts (NO_COLOR is honoured)"},
    {"--markdown", "on|off|auto", M(RUN) | M(DECODE), G_LOOK, CHOICE, AT(answer.markdown), 0, 0, "auto", "show bold, lists, headings and code of a chat model's answer on a terminal; auto: where it has colour"},
    {"--echo", NULL, M(RUN), G_LOOK, FLAG, AT(answer.echo), 0, 0, NULL, "print the prompt before the answer, in a line of its own if it is a message of a chat template"},
    {"--no-newline", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(answer.no_newline), 0, 0, NULL, "add no newline to an answer that does not end in one"},
    {"--no-stream", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(answer.no_stream), 0, 0, NULL, "write the answer in one piece when it is complete, so that answers of several processes do not mix"},
    {"--special -sp", NULL, MODES_ANSWER, G_LOOK, FLAG, AT(answer.special), 0, 0, NULL, "print control tokens too"},
    {"--json", NULL, M(MODELS) | M(TOKENIZE), G_LOOK, FLAG, AT(answer.json), 0, 0, NULL, "a JSON list instead of text"},
    {"--json", NULL, M(KV), G_LOOK, FLAG, AT(answer.json), 0, 0, NULL, "list: a JSON list instead of text"},
    {"--json", NULL, M(RUN) | M(DECODE) | M(INSPECT) | M(PERPLEXITY), G_LOOK, FLAG, AT(answer.json), 0, 0, NULL, "one JSON object instead of text"},
    {"--jsonl", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(answer.jsonl), 0, 0, NULL, "one JSON object for each token as it comes, then the object of --json"},
    {"--extract", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(answer.extract), 0, 0, NULL, "print only the first code block or JSON value of the answer"},
    {"--logprobs", "N", MODES_ANSWER, G_LOOK, INT, AT(answer.logprobs), 0, 1000, NULL, "log-probabilities of each token and the N likeliest, in JSON"},
    {"--dump-prompt", NULL, MODES_PROMPT, G_LOOK, FLAG, AT(answer.dump_prompt), 0, 0, NULL, "show the rendered prompt on stderr"},
    {"--dump-tokens", NULL, MODES_PROMPT, G_LOOK, FLAG, AT(answer.dump_tokens), 0, 0, NULL, "show the prompt's tokens on stderr"},
    {"--dry-run", NULL, M(RUN) | M(BATCH), G_LOOK, FLAG, AT(engine.dry_run), 0, 0, NULL, "show the memory budget on stderr and stop"},
    {"--preset", "NAME", MODES_ALL, G_CONFIG, TEXT, AT(preset), 0, 0, NULL, "the options of section [NAME] of the config file"},
    {"--no-config", NULL, MODES_ALL, G_CONFIG, FLAG, AT(no_config), 0, 0, NULL, "do not read the configuration file"},
    {"--show-config", NULL, MODES_ALL, G_CONFIG, FLAG, AT(show_config), 0, 0, NULL, "print the options that apply, where each comes from, and stop"},
    {"-h --help", NULL, MODES_ALL, G_LOOK, HELP, 0, 0, 0, NULL, "-h: the common options; --help: all of them"},
    {"--version", NULL, MODES_ALL, G_LOOK, VERSION, 0, 0, 0, NULL, "version, compiler, kernels, built-in model"},
    {"--man", NULL, M(RUN), G_LOOK, MAN, 0, 0, 0, NULL, "the man page: quill --man | man -l -"},
    {"--completions", "bash|zsh|fish", M(RUN), G_LOOK, COMPLETIONS, 0, 0, 0, NULL, "a script that makes the shell complete these options"},
};
// clang-format on
const int cli_n_options = ARRAY_LEN(cli_options);

const char *const cli_modes[N_MODES] = {
    [MODE_RUN] = "",
    [MODE_BENCH] = "bench",
    [MODE_PERPLEXITY] = "perplexity",
    [MODE_INSPECT] = "inspect",
    [MODE_TOKENIZE] = "tokenize",
    [MODE_LOGITS] = "logits",
    [MODE_BATCH] = "batch",
    [MODE_PREFILL] = "prefill",
    [MODE_DECODE] = "decode",
    [MODE_KV] = "kv",
    [MODE_TEMPLATE] = "template",
    [MODE_QUANTIZE] = "quantize",
    [MODE_PULL] = "pull",
    [MODE_MODELS] = "models",
    [MODE_CHUNK] = "chunk",
};

const char *cli_mode_name(Mode m) { return m == MODE_RUN ? "quill" : cli_modes[m]; }

Mode cli_find_mode(const char *word) {
    for (int m = MODE_RUN + 1; m < N_MODES; m++)
        if (strcmp(word, cli_modes[m]) == 0) return (Mode)m;
    return MODE_RUN;
}

// ---- looking up -----------------------------------------------------------------------------------------------------

const char *cli_next_name(const char *names, char name[32]) {
    while (*names == ' ') names++;
    if (!*names) return NULL;
    size_t n = strcspn(names, " ");
    snprintf(name, 32, "%.*s", (int)n, names);
    return names + n;
}

bool cli_has_name(const char *names, const char *flag) {
    char name[32];
    for (const char *at = names; (at = cli_next_name(at, name));)
        if (strcmp(name, flag) == 0) return true;
    return false;
}

const Option *cli_find(const char *flag, unsigned modes) {
    for (int i = 0; i < cli_n_options; i++)
        if (cli_options[i].modes & modes && cli_has_name(cli_options[i].names, flag)) return &cli_options[i];
    return NULL;
}

const Option *cli_find_long(const char *name, unsigned modes) {
    char flag[64];
    snprintf(flag, sizeof flag, "--%.60s", name);
    for (char *at = flag + 2; *at; at++)
        if (*at == '_') *at = '-';
    return cli_find(flag, modes);
}

void cli_long_name(const Option *o, char name[32]) {
    const char *at = cli_next_name(o->names, name);
    if (name[1] != '-') cli_next_name(at, name);
    memmove(name, name + 2, strlen(name + 2) + 1);
}

bool cli_can_be_off(const Option *o) {
    static const size_t with_value[] = {AT(engine.evict),
                                        AT(engine.speculate),
                                        AT(engine.kv_dir),
                                        AT(engine.ubatch),
                                        AT(answer.chat_template),
                                        AT(answer.chat_template_file),
                                        AT(answer.system),
                                        AT(answer.system_file),
                                        AT(answer.think),
                                        AT(answer.tools.file),
                                        AT(answer.tools.choice),
                                        AT(answer.beams),
                                        AT(answer.best_of),
                                        AT(answer.chunk_split),
                                        AT(answer.blend),
                                        AT(answer.logprobs),
                                        AT(batch.slo)};
    for (size_t i = 0; i < ARRAY_LEN(with_value); i++)
        if (o->at == with_value[i]) return true;
    return o->kind == STOPS || o->kind == BIAS;
}

bool cli_settable(const Option *o) {
    bool fixed = o->at == AT(engine.ctx_size); // the size of the KV cache cannot change
    bool length = o->group == G_LENGTH || o->at == AT(answer.context_shift);
    return o->modes & M(RUN) && !fixed && (length || o->group == G_SAMPLING || o->group == G_FORM);
}

bool cli_job_settable(const Option *o) { return cli_settable(o) || o->group == G_SEARCH; }

bool cli_chat_settable(const Option *o) {
    bool look = o->modes & M(RUN) && (o->at == AT(answer.verbose) || o->at == AT(answer.markdown));
    return look || cli_settable(o);
}
