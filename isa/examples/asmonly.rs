use barewave_isa::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = Target::GFX942;
    let src = std::fs::read_to_string(&a[2]).unwrap();
    match a[1].as_str() {
        "asm" => { let o = assemble(t, Mode::of(t), &src).map_err(|e| e[0].to_string()).unwrap(); println!("{}", o.sections[0].bytes.len()); }
        "none" => println!("{}", src.len()),
        _ => {
            let o = assemble(t, Mode::of(t), &src).map_err(|e| e[0].to_string()).unwrap();
            let b = &o.sections[0].bytes; let d = Decoder::new(t, Mode::of(t));
            let n: usize = a[3].parse().unwrap();
            let mut s = String::new(); let mut c = 0usize;
            for _ in 0..n { let mut at = 0; while let Some(r) = d.decode(&b[at..]) { at += r.len(); if a[1] == "print" { s.clear(); r.print(&mut s); c += s.len(); } else { c += r.len(); } } }
            println!("{c}");
        }
    }
}
