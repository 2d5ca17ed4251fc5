use barewave_isa::*;
use std::collections::BTreeMap;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let show: usize = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(10);
    for t in args[1].split(',') {
        let text = std::fs::read_to_string(format!("/work/isatmp/v/{t}.asm.tsv")).unwrap();
        let target = Target::parse(t).unwrap();
        let (mut ok, mut n) = (0, 0);
        let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for line in text.lines() {
            let f: Vec<&str> = line.split('\t').collect();
            let mut mode = Mode::of(target);
            match f[0].split(':').nth(1) {
                Some("w64") => mode.wave64 = true,
                Some("t16") => mode.true16 = true,
                Some("f16") => mode.true16 = false,
                _ => {}
            }
            n += 1;
            let fail = match parse(target, mode, f[1]) {
                Err(e) => format!("E {}", e.message),
                Ok(r) => {
                    let hex: String = r.bytes().iter().map(|b| format!("{b:02x}")).collect();
                    if hex == f[2] {
                        ok += 1;
                        continue;
                    }
                    format!("B {} {hex}", r.encoding())
                }
            };
            let m = f[1].split('_').next().unwrap();
            let key = format!("{m} {}", fail.chars().filter(|c| !c.is_ascii_digit()).take(40).collect::<String>());
            let key = if fail.starts_with('B') {
                format!("{m} {}", &fail.split(' ').take(2).collect::<Vec<_>>().join(" "))
            } else {
                key
            };
            let k = kinds.entry(key).or_insert((0, format!("{line} {fail}")));
            k.0 += 1;
        }
        println!("{t}: {ok}/{n}");
        let mut k: Vec<_> = kinds.into_iter().collect();
        k.sort_by_key(|x| std::cmp::Reverse(x.1.0));
        for (key, (c, ex)) in k.iter().take(show) {
            println!("  {c} {key}: {ex}");
        }
    }
}
