use barewave_isa::*;
use std::collections::BTreeMap;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let show: usize = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(10);
    for t in args[1].split(',') {
        let text = std::fs::read_to_string(format!("/work/isatmp/v/{t}.dis.tsv")).unwrap();
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
            let bytes: Vec<u8> =
                (0..f[2].len() / 2).map(|i| u8::from_str_radix(&f[2][2 * i..2 * i + 2], 16).unwrap()).collect();
            n += 1;
            let fmt;
            let fail = match decode(target, mode, &bytes) {
                None => {
                    fmt = String::new();
                    Some("undecoded".to_string())
                }
                Some(r) if r.len() != bytes.len() => {
                    fmt = r.encoding().into();
                    Some(format!("length {}", r.len()))
                }
                Some(r) => {
                    fmt = format!("{}{}", r.encoding(), r.overlay());
                    let i = r.inst();
                    match encode_raw(target, mode, r.form(), &i) {
                        _ if {
                            let a: String = r.to_string();
                            a.split_whitespace().collect::<Vec<_>>() != f[1].split_whitespace().collect::<Vec<_>>()
                        } =>
                        {
                            Some(format!("text: {r}"))
                        }
                        Err(e) => Some(format!("encode: {e}")),
                        Ok(x) if x.bytes().as_slice() == bytes => None,
                        Ok(x) if x.len() < bytes.len() => None,
                        Ok(x) if decode(target, mode, &x.bytes()).map(|r| r.inst()).as_ref() == Some(&i) => None,
                        Ok(x) => Some(format!("bytes {:02x?} from {:?}", x.bytes(), i)),
                    }
                }
            };
            match fail {
                None => ok += 1,
                Some(e) => {
                    let key = if e.starts_with("text") {
                        let a: Vec<&str> = e[6..].split_whitespace().collect();
                        let b: Vec<&str> = f[1].split_whitespace().collect();
                        let i = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
                        let clean = |s: Option<&&str>| s.map_or("-", |v| *v).replace(|c: char| c.is_ascii_digit(), "");
                        format!(
                            "T {fmt} {} | {}",
                            if i == 0 { "".into() } else { clean(a.get(i)) },
                            if i == 0 { "mnemonic".into() } else { clean(b.get(i)) }
                        )
                    } else {
                        format!("{fmt} {}", e.split(|c: char| c.is_ascii_digit()).next().unwrap())
                    };
                    let k = kinds
                        .entry(if e == "undecoded" {
                            format!("undecoded {}", f[1].split('_').next().unwrap())
                        } else {
                            key
                        })
                        .or_insert((0, format!("{line} {e}")));
                    k.0 += 1;
                }
            }
        }
        println!("{t}: {ok}/{n}");
        let mut k: Vec<_> = kinds.into_iter().collect();
        k.sort_by_key(|x| std::cmp::Reverse(x.1.0));
        for (key, (c, ex)) in k.iter().take(show) {
            println!("  {c} {key}: {ex}");
        }
    }
}
