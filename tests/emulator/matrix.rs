//! Matrix instructions against the maps that AMD's matrix instruction calculator prints.
//!
//! For every instruction of the published listings (found in `../shared/data/layouts`, or where BAREWAVE_SHARED says)
//! random matrices are placed in registers by the listing's formulas, the instruction runs on the emulated device, and
//! the result, found by the formulas again, is compared with a product on the host. Numbers are small integers, so every
//! sum is exact. Nothing of our own layout code takes part.

use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave_isa::{Form, Inst, Mode, Op, Operand, Reg, Regs, Target, encode_raw, op, parse};
use std::collections::HashMap;
use std::path::PathBuf;

/// Evaluates `2 * floor(k / 8) + (floor(k / 2) % 2)`.
struct Formula<'a> {
    text: &'a [u8],
    at: usize,
    vars: &'a [(&'a str, i64)],
}

impl Formula<'_> {
    fn value(text: &str, vars: &[(&str, i64)]) -> i64 {
        let mut f = Formula { text: text.as_bytes(), at: 0, vars };
        f.sum()
    }
    fn peek(&mut self) -> u8 {
        while self.text.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or(0)
    }
    fn sum(&mut self) -> i64 {
        let mut v = self.product();
        loop {
            match self.peek() {
                b'+' => {
                    self.at += 1;
                    v += self.product();
                }
                b'-' => {
                    self.at += 1;
                    v -= self.product();
                }
                _ => return v,
            }
        }
    }
    fn product(&mut self) -> i64 {
        let mut v = self.factor();
        loop {
            let o = self.peek();
            if !matches!(o, b'*' | b'/' | b'%') {
                return v;
            }
            self.at += 1;
            let x = self.factor();
            match o {
                b'*' => v *= x,
                b'/' => v /= x,
                _ => v %= x,
            }
        }
    }
    fn factor(&mut self) -> i64 {
        if self.peek() == b'(' {
            self.at += 1;
            let v = self.sum();
            // One listing lacks a closing parenthesis.
            if self.peek() == b')' {
                self.at += 1;
            }
            return v;
        }
        let start = self.at;
        while self.text.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_') {
            self.at += 1;
        }
        let word = std::str::from_utf8(&self.text[start..self.at]).unwrap();
        if word == "floor" {
            return self.factor();
        }
        if let Ok(n) = word.parse() {
            return n;
        }
        let found = self.vars.iter().find(|v| v.0 == word);
        found.unwrap_or_else(|| panic!("'{word}' in {}", String::from_utf8_lossy(self.text))).1
    }
}

/// One instruction of a listing.
struct Listed {
    name: String,
    dims: HashMap<String, usize>,
    /// `A`, `B`, `C`, `D`, `compression` to (GPR with bits, lane), by wave size.
    maps: HashMap<(usize, String), (String, String)>,
    gprs: HashMap<(usize, String), usize>,
    sparse: bool,
}

fn listings(text: &str) -> Vec<Listed> {
    let mut out = Vec::new();
    for part in text.split("Architecture:").skip(1) {
        let name = part.split("Instruction: ").nth(1).unwrap().lines().next().unwrap().trim().to_lowercase();
        let mut l = Listed { name, dims: HashMap::new(), maps: HashMap::new(), gprs: HashMap::new(), sparse: false };
        let mut wave = 64;
        let mut forward = false;
        // Long formulas are continued on deeply indented lines.
        let mut lines: Vec<String> = Vec::new();
        for line in part.lines() {
            let indent = line.len() - line.trim_start().len();
            match lines.last_mut() {
                Some(last) if indent > 20 => {
                    last.push(' ');
                    last.push_str(line.trim());
                }
                _ => lines.push(line.trim().to_string()),
            }
        }
        for line in &lines {
            if line.starts_with("Wave32") {
                wave = 32;
            } else if line.starts_with("Wave64") {
                wave = 64;
            }
            if line.contains("to register mapping") {
                forward = true;
            } else if line.contains("to matrix element mapping") {
                forward = false;
            }
            l.sparse |= line == "Sparse A matrix: True" || line.starts_with("compression[");
            for d in ["M", "N", "K", "blocks"] {
                if let Some(v) = line.strip_prefix(&format!("{d}: ")) {
                    l.dims.insert(d.into(), v.parse().unwrap());
                }
            }
            if let Some(rest) = line.strip_prefix("GPRs required for ") {
                let (m, n) = rest.split_once(": ").unwrap();
                l.gprs.insert((wave, m.into()), n.parse().unwrap());
            }
            if let (true, Some((left, right))) = (forward, line.split_once(": ")) {
                let matrix = left.split('[').next().unwrap().trim_start_matches("C or ").to_string();
                if left.ends_with("GPR") {
                    l.maps.entry((wave, matrix)).or_default().0 = right.into();
                } else if left.ends_with("Lane") {
                    l.maps.entry((wave, matrix)).or_default().1 = right.into();
                }
            }
        }
        out.push(l);
    }
    out
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Bits of a small integer in a format.
fn bits(ty: &str, v: i32, fnuz: bool) -> u64 {
    let float = |exp: u32, man: u32, bias: i32| -> u64 {
        if v == 0 {
            return 0;
        }
        let a = v.unsigned_abs();
        let e = 31 - a.leading_zeros();
        let f = (a << man >> e) & ((1 << man) - 1);
        (u64::from(v < 0) << (exp + man)) | ((e as i32 + bias) as u64) << man | f as u64
    };
    match ty {
        "f64" => (v as f64).to_bits(),
        "f32" | "xf32" => (v as f32).to_bits() as u64,
        "f16" => half::f16::from_f32(v as f32).to_bits() as u64,
        "bf16" => half::bf16::from_f32(v as f32).to_bits() as u64,
        "fp8" => float(4, 3, if fnuz { 8 } else { 7 }),
        "bf8" => float(5, 2, if fnuz { 16 } else { 15 }),
        "i8" | "iu8" => v as u8 as u64,
        "iu4" => v as u64 & 15,
        "i32" => v as u32 as u64,
        _ => panic!("type {ty}"),
    }
}

fn width(ty: &str) -> usize {
    match ty {
        "f64" => 64,
        "f32" | "xf32" | "i32" => 32,
        "f16" | "bf16" => 16,
        "iu4" => 4,
        _ => 8,
    }
}

/// Element types of A, B and D from the mnemonic.
fn types(name: &str) -> (String, String, String) {
    let rest = name.split_once('_').unwrap().1.split_once('_').unwrap().1;
    let (d, rest) = rest.split_once('_').unwrap();
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == 'x').trim_start_matches('_');
    let rest = if name.contains("xf32") { "xf32" } else { rest };
    let mut list: Vec<&str> = rest.split('_').collect();
    list.retain(|t| !(t.ends_with('b') && t[..t.len() - 1].parse::<u32>().is_ok()) && *t != "1k");
    let a = list[0];
    let b = list.get(1).copied().unwrap_or(a);
    (a.into(), b.into(), d.into())
}

/// Register file of a wave: `[register][lane]`.
type File = Vec<[u32; 64]>;

fn write(file: &mut File, first: usize, place: (usize, usize, usize), width: usize, value: u64) {
    let (gpr, shift, lane) = place;
    if width == 64 {
        file[first + gpr][lane] = value as u32;
        file[first + gpr + 1][lane] = (value >> 32) as u32;
        return;
    }
    let mask = (((1u64 << width) - 1) as u32) << shift;
    let cell = &mut file[first + gpr][lane];
    *cell = *cell & !mask | (value as u32) << shift & mask;
}

/// Where an element is: register, lowest bit, lane.
fn place(map: &(String, String), vars: &[(&str, i64)]) -> (usize, usize, usize) {
    let (gpr, bits) = map.0.split_once(".[").unwrap_or((&map.0, ""));
    let low = bits.trim_end_matches(']').split(" : ").nth(1).map_or(0, |t| Formula::value(t, vars));
    // Doubles name a pair of registers: "[2*(i/4)+1 : 2*(i/4)]" or "[1:0]".
    let gpr = match gpr.trim().strip_prefix('[') {
        Some(pair) => Formula::value(pair.trim_end_matches(']').split(':').nth(1).unwrap(), vars),
        None => Formula::value(gpr, vars),
    };
    (gpr as usize, low as usize, Formula::value(&map.1, vars) as usize)
}

const A: usize = 16;
const B: usize = 32;
const C: usize = 64;
const INDEX: usize = 48;
const ROWS: usize = 128;

/// Runs one instruction over a register file that holds A, B, C and indices; returns registers from `C` on.
fn execute(t: Target, wave: usize, text: &str, file: &File, agprs: bool) -> File {
    let v = |n: usize| Operand::Regs(Regs::v(n as u16, 1));
    let mode = Mode { wave64: wave == 64, true16: false };
    let mut code = Vec::new();
    let mut put = |inst: &Inst| {
        let raw = encode_raw(t, mode, Form::Any, inst).unwrap_or_else(|e| panic!("{}: {e}", inst.op));
        code.extend_from_slice(&raw.bytes());
    };
    let i = |o: Op, d: &[Operand], s: &[Operand]| Inst::new(o, d, s);
    let pair = |n| Operand::Regs(Regs::s(n, 2));
    put(&i(op::S_LOAD_DWORDX2, &[pair(8)], &[pair(0), Operand::Imm(0)]));
    put(&i(op::V_AND_B32, &[v(0)], &[Operand::Imm(0x3ff), v(0)]));
    put(&i(op::V_LSHLREV_B32, &[v(1)], &[Operand::Imm(2), v(0)]));
    put(&i(op::S_MOVK_I32, &[Operand::Regs(Regs::s(12, 1))], &[Operand::Imm(256)]));
    let step = i(op::V_ADD_U32, &[v(1)], &[Operand::Regs(Regs::s(12, 1)), v(1)]);
    for r in A..ROWS {
        put(&i(op::GLOBAL_LOAD_DWORD, &[v(r)], &[v(1), pair(8)]));
        put(&step);
    }
    let acc = |n: usize| Operand::Regs(Regs::new(Reg::a(n as u16), 1));
    if agprs {
        (0..64).for_each(|r| put(&i(op::V_ACCVGPR_WRITE_B32, &[acc(r)], &[v(C + r)])));
    }
    let raw = parse(t, mode, text).unwrap_or_else(|e| panic!("{text}: {}", e.message));
    put(&raw.inst());
    if agprs {
        (0..64).for_each(|r| put(&i(op::V_ACCVGPR_READ_B32, &[v(C + r)], &[acc(r)])));
    }
    for r in C..ROWS {
        put(&i(op::GLOBAL_STORE_DWORD, &[], &[v(1), v(r), pair(8)]));
        put(&step);
    }
    put(&i(op::S_ENDPGM, &[], &[Operand::Imm(0)]));
    let mut k = Kernel::new(t, "k", code);
    (k.vgprs, k.sgprs, k.kernarg_size, k.workgroup_ids) = (128, 32, 8, [false; 3]);
    k.agprs = if agprs { 64 } else { 0 };
    k.wave32 = wave == 32;
    let elf = CodeObject { target: t, abi: Abi::V5, kernels: vec![k], sections: vec![] }.to_bytes().unwrap();
    let device = EmuDevice::with_memory(t, 1 << 28).unwrap();
    let module = device.load(&elf).unwrap();
    let bytes: Vec<u8> = file[A..].iter().flatten().flat_map(|w| w.to_le_bytes()).collect();
    let address = device.alloc(256 * 256).unwrap();
    device.write(address, &bytes).unwrap();
    let options = LaunchOptions::default();
    device
        .launch(&module.kernel("k").unwrap(), [1, 1, 1], [wave as u32, 1, 1], &address.to_le_bytes(), &options)
        .unwrap_or_else(|f| panic!("{}: {text}: {f}", t.info().name));
    let mut out = vec![0; 256 * (ROWS - C)];
    device.read(address + bytes.len() as u64, &mut out).unwrap();
    let word = |i: usize| u32::from_le_bytes(out[4 * i..4 * i + 4].try_into().unwrap());
    (0..ROWS - C).map(|r| std::array::from_fn(|l| word(64 * r + l))).collect()
}

fn check(t: Target, l: &Listed, wave: usize, seed: u64) {
    let (ta, tb, td) = types(&l.name);
    let fnuz = t.info().name == "gfx942";
    let (m, n, k) = (l.dims["M"], l.dims["N"], l.dims["K"]);
    let blocks = l.dims.get("blocks").copied().unwrap_or(1);
    let mut rng = Random(seed);
    let mut file: File = vec![[0; 64]; ROWS];
    let vars = |i: usize, j: usize, k: usize, b: usize| {
        [("i", i as i64), ("j", j as i64), ("k", k as i64), ("block", b as i64)]
    };
    let map = |x: &str| l.maps.get(&(wave, x.to_string())).unwrap_or_else(|| panic!("{}: no map of {x}", l.name));
    let number = |rng: &mut Random| rng.below(7) as i32 - 3;
    let mut a = vec![0i32; blocks * m * k];
    let mut b = vec![0i32; blocks * k * n];
    let mut c = vec![0i32; blocks * m * n];
    for block in 0..blocks {
        for i in 0..m {
            if l.sparse {
                for g in (0..k).step_by(4) {
                    let first = rng.below(3) as usize;
                    let second = first + 1 + rng.below(3 - first as u64) as usize;
                    let at = place(map("A"), &vars(i, 0, g, block));
                    let ix = place(map("compression"), &vars(i, 0, g, block));
                    for (s, pos) in [first, second].into_iter().enumerate() {
                        let v = number(&mut rng);
                        a[(block * m + i) * k + g + pos] = v;
                        write(&mut file, A, (at.0, at.1 + s * width(&ta), at.2), width(&ta), bits(&ta, v, fnuz));
                        write(&mut file, INDEX, (ix.0, ix.1 + 2 * s, ix.2), 2, pos as u64);
                    }
                }
            } else {
                for kk in 0..k {
                    let v = number(&mut rng);
                    a[(block * m + i) * k + kk] = v;
                    let p = place(map("A"), &vars(i, 0, kk, block));
                    write(&mut file, A, p, width(&ta), bits(&ta, v, fnuz));
                }
            }
        }
        for kk in 0..k {
            for j in 0..n {
                let v = number(&mut rng);
                b[(block * k + kk) * n + j] = v;
                let mut p = place(map("B"), &vars(0, j, kk, block));
                if l.name.starts_with("v_smfmac") && width(&tb) == 16 {
                    // The forward map is misprinted; this is its inverse's.
                    p.0 = kk % 8 / 2;
                }
                write(&mut file, B, p, width(&tb), bits(&tb, v, fnuz));
            }
        }
        for i in 0..m {
            for j in 0..n {
                let v = number(&mut rng);
                c[(block * m + i) * n + j] = v;
                let p = place(map("D"), &vars(i, j, 0, block));
                write(&mut file, C, p, width(&td), bits(&td, v, false));
            }
        }
    }
    if l.name.starts_with("v_wmma") && l.maps[&(wave, "A".to_string())].1.trim() == "i" {
        // RDNA3 wants both halves of the wave to hold the operands.
        for r in A..C {
            for lane in 0..64 {
                file[r][lane] = file[r][lane % 16];
            }
        }
    }
    let gprs = |x: &str| l.gprs[&(wave, x.to_string())];
    let agprs = t.info().name == "gfx908";
    let range = |file: char, from: usize, n: usize| {
        if n == 1 { format!("{file}{from}") } else { format!("{file}[{from}:{}]", from + n - 1) }
    };
    let d = if agprs { range('a', 0, gprs("D")) } else { range('v', C, gprs("D")) };
    let third = if l.sparse { format!("v{INDEX}") } else { d.clone() };
    let signs = if ta.starts_with("iu") { " neg_lo:[1,1,0]" } else { "" };
    let text = format!("{} {d}, {}, {}, {third}{signs}", l.name, range('v', A, gprs("A")), range('v', B, gprs("B")));
    let out = execute(t, wave, &text, &file, agprs);
    for block in 0..blocks {
        for i in 0..m {
            for j in 0..n {
                let dot: i32 = (0..k).map(|x| a[(block * m + i) * k + x] * b[(block * k + x) * n + j]).sum();
                let want = bits(&td, dot + c[(block * m + i) * n + j], false);
                let (gpr, shift, lane) = place(map("D"), &vars(i, j, 0, block));
                let got = match width(&td) {
                    64 => out[gpr][lane] as u64 | (out[gpr + 1][lane] as u64) << 32,
                    32 => out[gpr][lane] as u64,
                    _ => (out[gpr][lane] >> shift & 0xffff) as u64,
                };
                assert_eq!(got, want, "{} wave{wave} `{text}`: D[{i}][{j}] of block {block}", t.info().name);
            }
        }
    }
}

#[test]
fn every_published_layout() {
    let root = std::env::var_os("BAREWAVE_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let dir = root.join("data/layouts");
    let mut checked = 0;
    for (file, targets) in [
        ("layouts_cdna1.txt", &["gfx908"][..]),
        ("layouts_cdna2.txt", &["gfx90a"]),
        ("layouts_cdna3.txt", &["gfx942"]),
        ("layouts_rdna3.txt", &["gfx1100", "gfx1151"]),
        ("layouts_rdna4.txt", &["gfx1200"]),
    ] {
        let Ok(text) = std::fs::read_to_string(dir.join(file)) else {
            eprintln!("skipped: no {file} in {} (BAREWAVE_SHARED)", dir.display());
            return;
        };
        for l in listings(&text) {
            for name in targets {
                let t = Target::parse(name).unwrap();
                for wave in [64, 32] {
                    if l.maps.contains_key(&(wave, "A".to_string())) {
                        check(t, &l, wave, 7 * checked + 1);
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 150, "only {checked} instructions were found in the listings");
}
