/* Reading config.json: what a model may be, and the line for each thing that it may not. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "worker/complain.h"
#include "worker/llama_config.h"

static char error[COMPLAINT_MAX];

#define REQUIRED                                                                                                       \
	"\"model_type\":\"llama\",\"vocab_size\":300,\"hidden_size\":24,\"intermediate_size\":40,\"num_hidden_layers\":3," \
	"\"num_attention_heads\":6"

static void expect_refused(const char *text, int code, const char *line)
{
	struct llama_config config;
	const char *path = scratch_write("config.json", text, strlen(text));
	assert_int_equal(llama_config_load(path, &config, error, sizeof(error)), code);
	assert_null(strchr(error, '\n'));
	assert_non_null(strstr(error, "/config.json: "));
	if (!strstr(error, line))
		fail_msg("'%s' is not in '%s'", line, error);
}

static struct llama_config load(const char *text)
{
	struct llama_config config;
	const char *path = scratch_write("config.json", text, strlen(text));
	if (llama_config_load(path, &config, error, sizeof(error)))
		fail_msg("%s", error);
	return config;
}

static void absent_keys_have_their_usual_values(void **state)
{
	(void)state;
	struct llama_config config = load(
			"{" REQUIRED ",\"num_key_value_heads\":null,\"rope_scaling\":null,\"unknown\":[1]}");
	assert_int_equal(config.vocab_size, 300);
	assert_int_equal(config.hidden_size, 24);
	assert_int_equal(config.intermediate_size, 40);
	assert_int_equal(config.layer_count, 3);
	assert_int_equal(config.head_count, 6);
	assert_int_equal(config.kv_head_count, 6);
	assert_int_equal(config.head_dim, 4);
	assert_int_equal(config.max_position_embeddings, 2048);
	assert_true(config.rms_norm_eps == 1e-6);
	assert_true(config.rope_theta == 10000);
	assert_false(config.tie_word_embeddings);
}

static void given_keys_are_taken(void **state)
{
	(void)state;
	struct llama_config config = load("{" REQUIRED ",\"num_key_value_heads\":2,\"head_dim\":10,\"rope_theta\":500000,"
					  "\"rms_norm_eps\":1e-05,\"max_position_embeddings\":64,\"tie_word_embeddings\":true,"
					  "\"hidden_act\":\"silu\",\"attention_bias\":false,\"attention_dropout\":0.0}");
	assert_int_equal(config.kv_head_count, 2);
	assert_int_equal(config.head_dim, 10);
	assert_int_equal(config.max_position_embeddings, 64);
	assert_true(config.rope_theta == 500000);
	assert_true(config.rms_norm_eps == 1e-5);
	assert_true(config.tie_word_embeddings);
	config = load("{" REQUIRED ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6}}");
	assert_true(config.rope_theta == 1e6);
}

static void wrong_type_or_range_names_the_key(void **state)
{
	(void)state;
	expect_refused("", EDIT_ERROR_MALFORMED, "not JSON");
	expect_refused("{\n\"a\":,}", EDIT_ERROR_MALFORMED, "line 2: not JSON");
	expect_refused("[]", EDIT_ERROR_MALFORMED, "expected a JSON object");
	expect_refused("{\"model_type\":\"llama\"}", EDIT_ERROR_MALFORMED,
		       "vocab_size: missing, expected a whole number from 1 to 16777216");
	expect_refused("{" REQUIRED ",\"num_key_value_heads\":\"2\"}", EDIT_ERROR_MALFORMED,
		       "num_key_value_heads: not a whole number, expected");
	expect_refused("{" REQUIRED ",\"num_key_value_heads\":2.0}", EDIT_ERROR_MALFORMED,
			"num_key_value_heads: not a whole number");
	expect_refused("{" REQUIRED ",\"num_key_value_heads\":0}", EDIT_ERROR_RANGE, "num_key_value_heads: 0, expected");
	expect_refused("{" REQUIRED ",\"num_key_value_heads\":-1}", EDIT_ERROR_RANGE, "num_key_value_heads: -1, expected");
	expect_refused("{" REQUIRED ",\"max_position_embeddings\":9223372036854775807}", EDIT_ERROR_RANGE,
		       "max_position_embeddings: 9223372036854775807, expected");
	expect_refused("{" REQUIRED ",\"rms_norm_eps\":0}", EDIT_ERROR_RANGE, "rms_norm_eps: 0, expected a number above 0");
	expect_refused("{" REQUIRED ",\"rms_norm_eps\":\"small\"}", EDIT_ERROR_MALFORMED, "rms_norm_eps: not a number");
	expect_refused("{" REQUIRED ",\"rope_theta\":-1}", EDIT_ERROR_RANGE, "rope_theta: -1, expected a number above 0");
	expect_refused("{" REQUIRED ",\"tie_word_embeddings\":1}", EDIT_ERROR_MALFORMED,
			"tie_word_embeddings: expected true or false");
	expect_refused("{" REQUIRED ",\"vocab_size\":5}", EDIT_ERROR_MALFORMED, "duplicate");
}

static void sizes_that_do_not_divide_are_refused(void **state)
{
	(void)state;
	expect_refused("{" REQUIRED ",\"num_key_value_heads\":4}", EDIT_ERROR_RANGE,
		       "num_key_value_heads: 4 does not divide num_attention_heads (6)");
	expect_refused(
			"{" REQUIRED ",\"num_key_value_heads\":12}", EDIT_ERROR_RANGE, "num_key_value_heads: 12 does not divide");
	expect_refused("{" REQUIRED ",\"head_dim\":3}", EDIT_ERROR_RANGE, "head_dim: 3, expected an even number");
	expect_refused("{\"model_type\":\"llama\",\"vocab_size\":9,\"hidden_size\":24,\"intermediate_size\":4,"
		       "\"num_hidden_layers\":1,\"num_attention_heads\":5}",
		       EDIT_ERROR_RANGE, "num_attention_heads: 5 does not divide hidden_size (24)");
	expect_refused("{\"model_type\":\"llama\",\"vocab_size\":9,\"hidden_size\":24,\"intermediate_size\":4,"
		       "\"num_hidden_layers\":1,\"num_attention_heads\":8}",
		       EDIT_ERROR_RANGE, "head_dim: 3, expected an even number");
}

static void other_models_are_refused_by_name(void **state)
{
	(void)state;
	expect_refused("{\"vocab_size\":300}", EDIT_ERROR_MALFORMED, "model_type: missing, expected \"llama\"");
	expect_refused("{\"model_type\":\"mistral\"}", EDIT_ERROR_INVALID,
			"model_type: \"mistral\" is not supported, only \"llama\"");
	expect_refused("{\"model_type\":7}", EDIT_ERROR_MALFORMED, "model_type: expected a text");
	expect_refused("{" REQUIRED ",\"hidden_act\":\"gelu\"}", EDIT_ERROR_INVALID,
			"hidden_act: \"gelu\" is not supported, only \"silu\"");
	expect_refused(
			"{" REQUIRED ",\"attention_bias\":true}", EDIT_ERROR_INVALID, "attention_bias: true is not supported");
	expect_refused("{" REQUIRED ",\"mlp_bias\":true}", EDIT_ERROR_INVALID, "mlp_bias: true is not supported");
	expect_refused("{" REQUIRED ",\"attention_dropout\":0.1}", EDIT_ERROR_INVALID,
			"attention_dropout: 0.1 is not supported, only 0");
	expect_refused("{" REQUIRED ",\"partial_rotary_factor\":0.5}", EDIT_ERROR_INVALID,
			"partial_rotary_factor: 0.5 is not supported");
	expect_refused("{" REQUIRED ",\"quantization_config\":{}}", EDIT_ERROR_INVALID, "quantization_config: quantised");
	expect_refused("{" REQUIRED ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", EDIT_ERROR_INVALID,
		       "rope_scaling: \"llama3\" is not supported");
	expect_refused("{" REQUIRED ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", EDIT_ERROR_INVALID,
		       "rope_scaling: \"linear\" is not supported");
	expect_refused(
			"{" REQUIRED ",\"rope_scaling\":{\"factor\":2}}", EDIT_ERROR_INVALID, "rope_scaling: \"of no known type\"");
	expect_refused("{" REQUIRED ",\"rope_scaling\":2}", EDIT_ERROR_INVALID, "rope_scaling: ");
	expect_refused("{" REQUIRED ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", EDIT_ERROR_INVALID,
		       "rope_parameters: \"yarn\" is not supported");
}

static void file_that_is_no_config_is_told(void **state)
{
	(void)state;
	struct llama_config config;
	assert_int_equal(llama_config_load(scratch_path("lost.json"), &config, error, sizeof(error)), EDIT_ERROR_SYSTEM);
	assert_non_null(strstr(error, "lost.json: cannot be opened: No such file"));
	size_t size = (1 << 20) + 1;
	char *large = malloc(size);
	memset(large, ' ', size);
	const char *path = scratch_write("config.json", large, size);
	assert_int_equal(llama_config_load(path, &config, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "config.json: 1048577 bytes, expected at most 1048576"));
	free(large);
}

static void text_is_kept_as_it_is(void **state)
{
	(void)state;
	static const char text[] = "{ \"model_type\" :\n\t\"llama\"}  ";
	char *copy;
	assert_int_equal(
			llama_config_text(scratch_write("config.json", text, sizeof(text) - 1), &copy, error, sizeof(error)), 0);
	assert_string_equal(copy, text);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(absent_keys_have_their_usual_values),
		cmocka_unit_test(given_keys_are_taken),
		cmocka_unit_test(wrong_type_or_range_names_the_key),
		cmocka_unit_test(sizes_that_do_not_divide_are_refused),
		cmocka_unit_test(other_models_are_refused_by_name),
		cmocka_unit_test(file_that_is_no_config_is_told),
		cmocka_unit_test(text_is_kept_as_it_is),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
