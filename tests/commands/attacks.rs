//! Files made to crash a reader, or to keep it busy: each ends with a message, soon, in little memory.

use crate::model::{Message, file, int, integers, ints, node, typed, value, weights};
use flate2::Compression;
use flate2::write::{DeflateEncoder, ZlibEncoder};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs the command with little address space for its heap; it must end soon, and fail with these words.
fn refused(args: &[&str], words: &[&str]) {
    let start = Instant::now();
    // The heap of a command that runs nothing: memory of emulated devices is only reserved.
    let script = "ulimit -d 1500000; exec \"$0\" \"$@\"";
    let mut c = Command::new("sh");
    c.args(["-c", script, env!("CARGO_BIN_EXE_barewave")]).args(args);
    let out = c.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    let code = out.status.code();
    assert!(matches!(code, Some(1 | 2)), "{args:?} ends with {:?}: {err}", out.status);
    for bad in ["panicked", "internal error", "memory allocation"] {
        assert!(!err.contains(bad), "{args:?}: {err}");
    }
    assert!(err.len() < 2000, "{args:?}: {} bytes of message", err.len());
    for w in words {
        assert!(err.contains(w), "{args:?} should mention '{w}': {err}");
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{args:?} took {:?}", start.elapsed());
}

fn works(args: &[&str]) -> (String, Duration) {
    let start = Instant::now();
    let mut c = Command::new(env!("CARGO_BIN_EXE_barewave"));
    let out = c.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    (String::from_utf8_lossy(&out.stdout).into_owned(), start.elapsed())
}

fn put(dir: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_string()
}

fn crc(bytes: &[u8]) -> u32 {
    let mut c = flate2::Crc::new();
    c.update(bytes);
    c.sum()
}

fn png(width: u32, height: u32, color: u8, palette: &[u8], pixels: &[u8]) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], data: &[u8]| {
        out.extend((data.len() as u32).to_be_bytes());
        let body = [kind, data].concat();
        out.extend(&body);
        out.extend(crc(&body).to_be_bytes());
    };
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, color, 0, 0, 0]);
    chunk(b"IHDR", &header);
    if !palette.is_empty() {
        chunk(b"PLTE", palette);
    }
    let mut z = ZlibEncoder::new(Vec::new(), Compression::best());
    z.write_all(pixels).unwrap();
    chunk(b"IDAT", &z.finish().unwrap());
    chunk(b"IEND", b"");
    out
}

const DIGITS: &str = "examples/digits/digits.onnx";
const ADD: &str = "examples/vector_add/vector_add.onnx";

#[test]
fn pictures() {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in [
        ("huge.png", png(0x7fff_ffff, 0x7fff_ffff, 6, &[], &[0; 40])),
        ("wide.png", png(200_000, 200_000, 2, &[], &[0; 40])),
        ("large.png", png(60_000, 4_000, 2, &[], &[0; 40])),
        ("palette.png", png(2, 2, 3, &[1, 2, 3, 4], &[0, 0, 1, 0, 1, 0])),
        ("odd.png", png(2, 2, 3, &[1], &[0, 0, 1, 0, 1, 0])),
        ("none.png", png(0, 0, 2, &[], &[])),
        ("empty.png", Vec::new()),
        ("jpeg.jpg", b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01".to_vec()),
    ] {
        let path = put(&dir, name, bytes);
        refused(&["run", DIGITS, "--input", &path], &[name, "not a readable image"]);
    }
    // Each format that is read goes by its usual extensions.
    let gray = [b"P5 28 28 255\n".as_slice(), &[0; 28 * 28]].concat();
    for name in ["zero.pgm", "zero.pnm", "zero.PNM"] {
        works(&["run", DIGITS, "--input", &put(&dir, name, &gray)]);
    }
    for name in ["none.webp", "none.tif", "none.tiff", "none.jp2", "none.j2k", "none.ppm", "none.pbm", "none.pam"] {
        refused(&["run", DIGITS, "--input", &put(&dir, name, "no image")], &[name, "not a readable image"]);
    }
}

/// A JPEG 2000 stream of more tiles than bytes: nothing is decoded for any of them.
#[test]
fn a_picture_of_tiles_alone() {
    let dir = TempDir::new().unwrap();
    let mut bytes = b"\xff\x4f\xff\x51\x00\x29\x00\x00".to_vec();
    for word in [60_000u32, 48, 0, 0, 2, 2, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(b"\x00\x01\x07\x01\x01\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x05\x04\x04\x00\x01");
    bytes.extend(b"\xff\x5c\x00\x13\x40\x40\x48\x48\x50\x48\x48\x50\x48\x48\x50\x48\x48\x50\x48\x48\x50");
    bytes.extend(b"\xff\x90\x00\x0a\x00\x00\x00\x00\x00\x0e\x00\x01\xff\x93\xff\xd9");
    refused(&["run", DIGITS, "--input", &put(&dir, "tiles.jp2", bytes)], &["tiles.jp2", "more tiles than bytes"]);
}

/// What never ends is not read for ever.
#[cfg(unix)]
#[test]
fn devices_are_no_files() {
    for args in [
        &["run", "/dev/zero"][..],
        &["disasm", "/dev/zero"],
        &["asm", "/dev/zero", "--target", "gfx942"],
        &["run", ADD, "--input", "a=@/dev/zero", "--random-inputs"],
        &["launch", "/dev/zero", "--kernel", "k", "--grid", "1", "--block", "64"],
    ] {
        refused(args, &["/dev/zero"]);
    }
}

/// A zip file of one deflated entry.
fn zip(name: &str, content: &dyn Fn(&mut dyn Write)) -> Vec<u8> {
    let mut sum = flate2::CrcWriter::new(DeflateEncoder::new(Vec::new(), Compression::best()));
    content(&mut sum);
    let (check, size) = (sum.crc().sum(), sum.crc().amount());
    let packed = sum.into_inner().finish().unwrap();
    let mut common = [20u16, 0, 8, 0, 0].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    for v in [check, packed.len() as u32, size] {
        common.extend(v.to_le_bytes());
    }
    common.extend((name.len() as u16).to_le_bytes());
    let mut out = b"PK\x03\x04".to_vec();
    out.extend(&common);
    out.extend([0, 0]);
    out.extend(name.as_bytes());
    out.extend(&packed);
    let directory = out.len() as u32;
    out.extend(b"PK\x01\x02\x14\x00");
    out.extend(&common);
    out.extend([0; 16]);
    out.extend(name.as_bytes());
    let length = out.len() as u32 - directory;
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend(length.to_le_bytes());
    out.extend(directory.to_le_bytes());
    out.extend([0, 0]);
    out
}

#[test]
fn archives_that_unpack_to_anything() {
    let dir = TempDir::new().unwrap();
    let header = |n: usize| {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n},), }}\n");
        [b"\x93NUMPY\x01\x00".as_slice(), &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
    };
    let n = 1usize << 28;
    let bomb = zip("a.npy", &|w| {
        w.write_all(&header(n)).unwrap();
        let zeros = vec![0u8; 1 << 20];
        (0..(n * 4) >> 20).for_each(|_| w.write_all(&zeros).unwrap());
    });
    assert!(bomb.len() < 2 << 20);
    let path = put(&dir, "bomb.npz", bomb);
    refused(&["run", ADD, "--input", &format!("@{path}"), "--random-inputs"], &["bomb.npz", "`a`"]);
    // One that claims more than it holds.
    let path = put(&dir, "claim.npz", zip("a.npy", &|w| w.write_all(&header(1 << 40)).unwrap()));
    refused(&["run", ADD, "--input", &format!("@{path}"), "--random-inputs"], &["claim.npz", "`a`"]);
    // Names are shown, but not all, and none as a line of its own.
    let path = put(&dir, "name.npz", zip("a\nerror: b\u{202e}.npy", &|w| w.write_all(&header(0)).unwrap()));
    refused(&["run", ADD, "--input", &format!("@{path}")], &["name.npz", "'a\\nerror: b\\u{202e}'"]);
    let path = put(&dir, "claim.npy", header(1 << 33));
    refused(&["run", ADD, "--input", &format!("a=@{path}"), "--random-inputs"], &["claim.npy"]);
}

/// A code object with an empty kernel, and where things are in it.
fn object(dir: &TempDir) -> Vec<u8> {
    let source = "
        .text
        .globl k
        .p2align 8
        .type k,@function
    k:
        s_endpgm
        .size k, .-k
        .rodata
        .p2align 6
        .amdhsa_kernel k
            .amdhsa_next_free_vgpr 8
            .amdhsa_next_free_sgpr 16
            .amdhsa_accum_offset 8
        .end_amdhsa_kernel
    ";
    let (from, to) = (put(dir, "k.s", source), put(dir, "k.hsaco", ""));
    works(&["asm", &from, "--target", "gfx942", "-o", &to]);
    std::fs::read(to).unwrap()
}

#[test]
fn segments_and_scratch_of_any_size() {
    let dir = TempDir::new().unwrap();
    let good = object(&dir);
    let launch = |path: &str| -> Vec<String> {
        ["launch", path, "--kernel", "k", "--grid", "1", "--block", "64"].map(String::from).to_vec()
    };
    // Every segment in turn claims to be large in memory.
    let headers = u64::from_le_bytes(good[32..40].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(good[56..58].try_into().unwrap()) as usize;
    for i in 0..count {
        let at = headers + i * 56;
        if u32::from_le_bytes(good[at..at + 4].try_into().unwrap()) != 1 {
            continue;
        }
        for size in [5u64 << 30, 1 << 38, 1 << 62] {
            let mut bad = good.clone();
            bad[at + 40..at + 48].copy_from_slice(&size.to_le_bytes());
            let path = put(&dir, "segment.hsaco", bad);
            let mut args = launch(&path);
            args.extend(["--max-memory", "1G"].map(String::from));
            refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        }
    }
    // The descriptor, 64 bytes before anything else says so, begins with LDS and scratch.
    let elf = barewave::codeobj::ElfFile::parse(&good).unwrap();
    let symbol = elf.symbols.iter().find(|s| s.name == "k.kd").unwrap();
    let at = elf.file_range(symbol.addr, 64).unwrap().start;
    for scratch in [u32::MAX, 0x7fff_fff0, 1 << 24] {
        let mut bad = good.clone();
        bad[at + 4..at + 8].copy_from_slice(&scratch.to_le_bytes());
        let path = put(&dir, "scratch.hsaco", bad);
        refused(&launch(&path).iter().map(String::as_str).collect::<Vec<_>>(), &["scratch"]);
    }
    // What any compiler writes as an object file is no model.
    let path = put(&dir, "k.o", &good);
    refused(&["run", &path], &["k.o", "barewave launch"]);
}

#[test]
fn assembly_that_grows() {
    let dir = TempDir::new().unwrap();
    let conditions = ".if 1\n".repeat(100_000);
    for (name, text) in [
        ("rept.s", ".rept 0x7fffffff\ns_nop 0\n.endr\n"),
        ("empty.s", ".rept 0x7fffffffffffffff\n.endr\n"),
        ("nested.s", ".rept 100000\n.rept 100000\n.endr\n.endr\n"),
        ("conditions.s", conditions.as_str()),
        ("self.s", ".macro m\nm\nm\n.endm\nm\n"),
        ("space.s", ".data\n.zero 0x7fffffffffff\n"),
        ("align.s", ".data\n.byte 1\n.p2align 62\n.byte 1\n"),
    ] {
        let path = put(&dir, name, text);
        refused(&["asm", &path, "--target", "gfx942", "-o", "/dev/null"], &[name]);
    }
}

#[test]
fn models_that_make_no_sense_name_the_cause() {
    let dir = TempDir::new().unwrap();
    let image = || value("x", &["1", "1", "4", "4"]);
    let y = || value("y", &["1", "1", "4", "4"]);
    let conv = |op: &str, w: Message| file(&[node(op, &["x", "w"], &["y"], &[])], &[image()], &[y()], &[w]);
    let range = |delta: i64| {
        let nodes = [
            node("Range", &["a", "b", "d"], &["r"], &[]),
            node("Cast", &["r"], &["f"], &[int("to", 1)]),
            node("Add", &["x", "f"], &["y"], &[]),
        ];
        let number = |name: &str, v: i64| integers(name, &[], &[v]);
        let all = [number("a", 0), number("b", 4), number("d", delta)];
        file(&nodes, &[value("x", &["4"])], &[value("y", &["4"])], &all)
    };
    let relu = |output: Message| file(&[node("Relu", &["x"], &["y"], &[])], &[value("x", &["4"])], &[output], &[]);
    // Branches in branches.
    let leaf = || Message::default().message(1, node("Relu", &["x"], &["y"], &[])).message(12, value("y", &["4"]));
    let branch = |name: &str, g: Message| Message::default().text(1, name).message(6, g).int(20, 5);
    let mut g = leaf();
    for _ in 0..50 {
        let both = [branch("then_branch", g), branch("else_branch", leaf())];
        g = Message::default().message(1, node("If", &["c"], &["y"], &both)).message(12, value("y", &["4"]));
    }
    let g = g.message(11, typed("c", 9, &[])).message(11, value("x", &["4"]));
    let ifs = Message::default().int(1, 8).message(8, Message::default().text(1, "").int(2, 20)).message(7, g).0;
    let pool = [ints("kernel_shape", &[0, 0])];
    // Functions that call the next one twice.
    let name = |i: usize| format!("F{i}");
    let call = |i: usize, x: &str, y: &str| node(&name(i), &[x], &[y], &[]).text(7, "own");
    let function = |i: usize| {
        let m = Message::default().text(1, &name(i)).text(4, "a").text(5, "c").text(10, "own");
        m.message(7, call(i + 1, "a", "b")).message(7, call(i + 1, "b", "c"))
    };
    let calls = file(&[call(0, "x", "y")], &[value("x", &["4"])], &[value("y", &["4"])], &[]);
    let calls = (0..40).fold(Message(calls), |m, i| m.message(25, function(i))).0;
    // Elements without a tensor: more than are counted.
    let repeated = file(
        &[node("Expand", &["x", "s"], &["r"], &[]), node("ReduceSum", &["r"], &["y"], &[int("keepdims", 0)])],
        &[value("x", &["4"])],
        &[value("y", &[])],
        &[integers("s", &[3], &[100_000_000, 100_000, 4])],
    );
    let product = file(
        &[
            node("Expand", &["x", "s"], &["r"], &[]),
            node("Transpose", &["r"], &["t"], &[]),
            node("MatMul", &["t", "r"], &["y"], &[]),
        ],
        &[value("x", &["4"])],
        &[value("y", &["4", "4"])],
        &[integers("s", &[2], &[(1 << 32) + 1000, 4])],
    );
    for (name, bytes, words) in [
        ("conv0.onnx", conv("Conv", weights("w", &[1, 1, 0, 0], &[])), &["Conv_y", "[0, 0]"][..]),
        ("transpose0.onnx", conv("ConvTranspose", weights("w", &[1, 1, 0, 0], &[])), &["ConvTranspose_y"]),
        (
            "pool0.onnx",
            file(&[node("MaxPool", &["x"], &["y"], &pool)], &[image()], &[y()], &[]),
            &["MaxPool_y", "[0, 0]"],
        ),
        ("calls.onnx", calls, &["function `F", "more than 262144 nodes"]),
        ("repeated.onnx", repeated, &["100000", "less than 2^31"]),
        ("product.onnx", product, &["4294968296", "less than 2^31"]),
        ("range0.onnx", range(0), &["Range_r", "delta is 0"]),
        ("type.onnx", relu(typed("y", 7, &["4"])), &["`y`", "i64", "f32"]),
        ("ifs.onnx", ifs, &["ifs.onnx", "nested too deeply"]),
    ] {
        let path = put(&dir, name, bytes);
        refused(&["run", &path, "--random-inputs"], words);
        refused(&["compile", &path, "--target", "gfx942", "-o", "/dev/null"], words);
    }
    // A row of what is too long to be stored.
    let number = |name: &str, v: i64| integers(name, &[1], &[v]);
    let n = (1 << 32) + 1000;
    let row = file(
        &[node("Expand", &["x", "s"], &["r"], &[]), node("Slice", &["r", "from", "to", "axis"], &["y"], &[])],
        &[value("x", &["4"])],
        &[value("y", &["1", "4"])],
        &[integers("s", &[2], &[n, 4]), number("from", n - 1), number("to", n), number("axis", 0)],
    );
    let (path, y) = (put(&dir, "row.onnx", row), put(&dir, "y.npy", ""));
    works(&["run", &path, "--input", "4xf32=3", "--output", &y]);
    assert!(std::fs::read(&y).unwrap().ends_with(&[3f32.to_le_bytes(); 4].concat()));
}

/// Each node doubles a value: what is a few hundred bytes in the file would be a terabyte.
#[test]
fn values_that_grow_by_doubling() {
    let dir = TempDir::new().unwrap();
    let doubled = |given: bool| {
        let names: Vec<String> = (0..=40).map(|i| format!("v{i}")).collect();
        let double = |w: &[String]| node("Concat", &[&w[0], &w[0]], &[&w[1]], &[int("axis", 0)]);
        let mut nodes: Vec<Message> = names.windows(2).map(double).collect();
        nodes.push(node("Neg", &["v40"], &["y"], &[]));
        let inputs = if given { vec![value("v0", &["1"])] } else { Vec::new() };
        let constants = if given { Vec::new() } else { vec![weights("v0", &[1], &[1.0])] };
        file(&nodes, &inputs, &[value("y", &["N"])], &constants)
    };
    for given in [false, true] {
        let path = put(&dir, "doubled.onnx", doubled(given));
        refused(&["compile", &path, "--target", "gfx942", "-o", "/dev/null"], &["1099511627776"]);
    }
}

#[test]
fn long_models_take_linear_time() {
    let dir = TempDir::new().unwrap();
    let chain = |n: usize| {
        let nodes: Vec<Message> = (0..n)
            .map(|i| node(["Relu", "Neg", "Abs"][i % 3], &[&format!("v{i}")], &[&format!("v{}", i + 1)], &[]))
            .collect();
        file(&nodes, &[value("v0", &["4"])], &[value(&format!("v{n}"), &["4"])], &[])
    };
    let concat = |n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("v{i}")).collect();
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let values: Vec<Message> = inputs.iter().map(|v| value(v, &["4"])).collect();
        let nodes = [node("Concat", &inputs, &["y"], &[int("axis", 0)])];
        file(&nodes, &values, &[value("y", &[&(4 * n).to_string()])], &[])
    };
    let split = |n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("v{i}")).collect();
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let values: Vec<Message> = outputs.iter().map(|v| value(v, &["4"])).collect();
        let nodes = [node("Split", &["x"], &outputs, &[int("axis", 0)])];
        file(&nodes, &[value("x", &[&(4 * n).to_string()])], &values, &[])
    };
    let models: [(&str, &dyn Fn(usize) -> Vec<u8>); 3] = [("chain", &chain), ("concat", &concat), ("split", &split)];
    for (name, make) in models {
        let time = |n: usize| {
            let path = put(&dir, &format!("{name}{n}.onnx"), make(n));
            // The best of three: others may use the machine.
            let once = || works(&["compile", &path, "--target", "gfx942", "-o", "/dev/null"]).1;
            (0..3).map(|_| once()).min().unwrap().as_secs_f64()
        };
        let (short, long) = (time(1250), time(5000));
        assert!(long < 10.0 * short + 0.5, "{name}: {short:.2} s for 1250, {long:.2} s for 5000");
    }
}
