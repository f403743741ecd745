// Loads an export from C++: prints the first numbers of each output for a sequence of token ids. OpenVINO reads the files
// of `--output-format onnx` and `openvino`, but not for Paddle Inference, as it lacks the operator unbind. Headers and
// libraries are in the Python package openvino (OV is its folder, NNNN the number of its library):
//
//   g++ -std=c++17 use_export.cpp -I OV/include -L OV/libs -l:libopenvino.so.NNNN -Wl,-rpath,OV/libs -o use_export
//   ./use_export results/served_onnx/model.onnx 2 7 8 3
//
// The ids are numbered as in tokenizer.json beside the model, with [CLS] first and [SEP] last.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <openvino/openvino.hpp>

int main(int argc, char **argv) try {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " MODEL ID ...\n";
    return 2;
  }
  std::vector<int64_t> ids, types(argc - 2, 0), mask(argc - 2, 1);  // one text: all tokens of type 0, none is padding
  for (int i = 2; i < argc; i++) ids.push_back(std::stoll(argv[i]));

  ov::Core core;
  auto request = core.compile_model(argv[1], "CPU", ov::hint::inference_precision(ov::element::f32)).create_infer_request();
  for (const auto &input : request.get_compiled_model().inputs()) {
    const auto &names = input.get_names();
    auto &values = names.count("input_ids") ? ids : names.count("token_type_ids") ? types : mask;
    request.set_tensor(input, ov::Tensor(ov::element::i64, {1, values.size()}, values.data()));  // [batch, tokens]
  }
  request.infer();
  for (const auto &output : request.get_compiled_model().outputs()) {
    auto tensor = request.get_tensor(output);
    const float *numbers = tensor.data<float>();
    for (size_t i = 0; i < std::min<size_t>(tensor.get_size(), 8); i++) std::cout << (i ? " " : "") << numbers[i];
    std::cout << "\n";
  }
} catch (const std::exception &error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
