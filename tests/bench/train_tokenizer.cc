extern "C" {
#include "tests/bench/train_tokenizer.h"

#include "daemon/base/file.h"
#include "daemon/model/tokenizer.h"
}

#include <exception>
#include <sentencepiece_trainer.h>
#include <string>
#include <unordered_map>

namespace
{

std::string join_markers()
{
    std::string joined;

    for (const char *const *marker = tokenizer_markers; *marker; marker++)
        joined += (joined.empty() ? "" : ",") + std::string(*marker);
    return joined;
}

} // namespace

bool train_tokenizer(const char *corpus_path, const char *model_path, struct error *err)
{
    try {
        const std::unordered_map<std::string, std::string> options = {
            {"input", corpus_path},
            {"model_type", "bpe"},
            {"vocab_size", "2000"},
            {"hard_vocab_limit", "false"},
            {"byte_fallback", "true"},
            {"character_coverage", "1.0"},
            {"normalization_rule_name", "identity"},
            {"add_dummy_prefix", "false"},
            {"remove_extra_whitespaces", "false"},
            {"split_digits", "true"},
            {"pad_id", std::to_string(TOKEN_PAD)},
            {"eos_id", std::to_string(TOKEN_EOS)},
            {"bos_id", std::to_string(TOKEN_BOS)},
            {"unk_id", std::to_string(TOKEN_UNK)},
            {"user_defined_symbols", join_markers()},
            {"max_sentence_length", "20000"},
            {"num_threads", "1"},
            {"minloglevel", "2"},
        };
        std::string model;
        const auto status = sentencepiece::SentencePieceTrainer::Train(options, nullptr, &model);

        if (!status.ok())
            return error_set(err, ERR_INVALID, "no tokenizer from '%s': %s", corpus_path,
                             status.ToString().c_str());
        return file_write(model_path, model.data(), model.size(), err);
    } catch (const std::exception &exception) {
        return error_set(err, ERR_INTERNAL, "no tokenizer from '%s': %s", corpus_path,
                         exception.what());
    }
}
