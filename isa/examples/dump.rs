use barewave_isa::*;
fn main() {
    for t in Target::all() {
        for e in encodings(t) {
            let (f, m) = e.fixed_bits();
            println!("{t}\t{}\t{}\t{}\t{f:x}\t{m:x}", e.mnemonic(), e.format(), e.bytes());
        }
    }
}
