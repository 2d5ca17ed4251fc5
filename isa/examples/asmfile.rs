use barewave_isa::*;
use std::io::Write;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = Target::parse(&a[1]).unwrap();
    let src = std::fs::read_to_string(&a[2]).unwrap();
    match assemble(t, Mode::of(t), &src) {
        Ok(x) => {
            std::fs::File::create(&a[3]).unwrap().write_all(&x.sections[0].bytes).unwrap();
            println!("{} bytes, {} kernels, {} relocs, syms {}", x.sections[0].bytes.len(), x.kernels.len(), x.sections[0].relocations.len(), x.symbols.len());
            let names = x.symbols.values().filter(|s| s.section == Some(0)).map(|s| (s.value as usize, s.name.clone())).collect();
            let lines = disassemble(t, Mode::of(t), &x.sections[0].bytes, &names);
            let text: String = lines.iter().map(|l| format!("{}{}\n", l.label.as_ref().map_or(String::new(), |n| format!("{n}:\n")), l.text)).collect();
            let y = assemble(t, Mode::of(t), &text).unwrap();
            println!("round trip {}", y.sections[0].bytes == x.sections[0].bytes);
        }
        Err(e) => for e in e.iter().take(5) { println!("{e}"); },
    }
}
