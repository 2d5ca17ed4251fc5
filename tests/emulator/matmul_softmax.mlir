func.func @mm(%a: tensor<64x128xf16>, %b: tensor<128x96xf16>) -> tensor<64x96xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x96xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x96xf32>) -> tensor<64x96xf32>
  %r = linalg.matmul ins(%a, %b : tensor<64x128xf16>, tensor<128x96xf16>) outs(%f : tensor<64x96xf32>) -> tensor<64x96xf32>
  return %r : tensor<64x96xf32>
}
func.func @softmax(%x: tensor<8x200xf32>) -> tensor<8x200xf32> {
  %e = tensor.empty() : tensor<8x200xf32>
  %r = linalg.softmax dimension(1) ins(%x : tensor<8x200xf32>) outs(%e : tensor<8x200xf32>) -> tensor<8x200xf32>
  return %r : tensor<8x200xf32>
}
