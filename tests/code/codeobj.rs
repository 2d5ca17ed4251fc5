//! Code objects: what we write, our reader, goblin and LLVM's tools agree on; what clang writes, our reader reads;
//! what is damaged gives an error.

use barewave::codeobj::{Abi, Arg, ArgKind, CodeObject, Contents, ElfFile, Kernel, MakeBytes, Section, code_objects};
use barewave_isa::Target;
use pretty_assertions::assert_eq;
use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `s_endpgm` of GCN, CDNA and RDNA1/2, of RDNA3 and RDNA4.
fn endpgm(t: Target) -> [u8; 4] {
    if t.info().name.starts_with("gfx11") || t.info().name.starts_with("gfx12") {
        0xbfb0_0000u32.to_le_bytes()
    } else {
        0xbf81_0000u32.to_le_bytes()
    }
}

fn sample(t: Target, abi: Abi) -> CodeObject<'static> {
    let mut a = Kernel::new(t, "first", endpgm(t).to_vec());
    (a.vgprs, a.sgprs, a.lds_bytes, a.kernarg_size) = (33, 20, 1024, 24);
    a.args = vec![
        Arg::buffer("x", 0),
        Arg::value("n", 8, 4),
        Arg { name: String::new(), offset: 12, size: 4, kind: ArgKind::Hidden("block_count_x".into()) },
    ];
    let mut b = Kernel::new(t, "second", endpgm(t).repeat(100));
    b.vgprs = 200;
    b.reqd_workgroup_size = Some([64, 2, 1]);
    let weights = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
    CodeObject {
        target: t,
        abi,
        kernels: vec![a, b],
        sections: vec![
            Section { name: ".barewave.plan".into(), data: Contents::Bytes(Cow::Borrowed(b"a plan")) },
            Section { name: ".barewave.weights".into(), data: Contents::Bytes(Cow::Owned(weights)) },
        ],
    }
}

/// Path of a tool if it runs here.
fn tool(name: &str) -> Option<&str> {
    Command::new(name).arg("--version").output().ok().filter(|o| o.status.success()).map(|_| name)
}

fn temp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn round_trip_on_every_target() {
    for t in Target::all() {
        let versions = [(Abi::V4, 4), (Abi::V5, 5), (Abi::V6, 6)];
        // generic targets came with version 6
        for (abi, version) in versions.into_iter().filter(|v| v.0 == v.0.of(t)) {
            let o = sample(t, abi);
            let bytes = o.to_bytes().unwrap();
            assert_eq!(bytes, o.to_bytes().unwrap(), "deterministic");
            let f = ElfFile::parse(&bytes).unwrap();
            assert_eq!((f.target, f.version), (Some(t), version));
            assert_eq!(f.target_name, format!("amdgcn-amd-amdhsa--{}", t.info().name));
            assert_eq!(f.kernels.len(), 2);
            for (k, want) in f.kernels.iter().zip(&o.kernels) {
                assert_eq!(k.name, want.name);
                assert_eq!(k.entry % 256, 0);
                assert_eq!(k.code_size, want.code.len() as u64);
                let code = f.file_range(k.entry, k.code_size).unwrap();
                assert_eq!(&bytes[code], &want.code[..]);
                let d = &k.descriptor;
                assert!(d.vgprs(f.family) >= want.vgprs && d.vgprs(f.family) < want.vgprs + 16);
                assert!(d.sgprs(f.family) >= want.sgprs);
                assert_eq!((d.lds_bytes, d.wave32()), (want.lds_bytes, want.wave32));
                assert_eq!(d.workgroup_ids(), want.workgroup_ids);
                let m = k.meta.as_ref().unwrap();
                assert_eq!((&m.args, m.reqd_workgroup_size), (&want.args, want.reqd_workgroup_size));
                assert_eq!(m.kernarg_size, want.kernarg_size);
            }
            for s in &o.sections {
                let place = f.section(&s.name).unwrap();
                assert_eq!(place.start % 4096, 0);
                assert!(f.segments.iter().all(|seg| seg.file.end <= place.start || place.end <= seg.file.start));
                let Contents::Bytes(data) = &s.data else { panic!() };
                assert_eq!(&bytes[place], &data[..]);
            }
        }
    }
}

#[test]
fn bytes_may_be_made_as_they_are_written() {
    #[derive(Debug)]
    struct Sevens(usize);
    impl MakeBytes for Sevens {
        fn len(&self) -> usize {
            5000
        }
        fn write_to(&self, to: &mut dyn Write) -> std::io::Result<()> {
            (0..self.0).try_for_each(|_| to.write_all(&[7]))
        }
    }
    let write = |made: &Sevens| {
        let mut o = sample(Target::GFX942, Abi::V5);
        let name = || ".sevens".to_string();
        let sections = vec![Section { name: name(), data: Contents::Made(made) }];
        let streamed = CodeObject { sections, ..o.clone() }.to_bytes();
        o.sections = vec![Section { name: name(), data: Contents::Bytes(Cow::Owned(vec![7; 5000])) }];
        streamed.map(|s| s == o.to_bytes().unwrap())
    };
    assert!(write(&Sevens(5000)).unwrap());
    assert!(write(&Sevens(4999)).unwrap_err().to_string().contains("4999 bytes were made, not 5000"));
}

#[test]
fn goblin_finds_dynamic_symbols() {
    let bytes = sample(Target::GFX942, Abi::V5).to_bytes().unwrap();
    let elf = goblin::elf::Elf::parse(&bytes).unwrap();
    let names: Vec<_> = elf.dynsyms.iter().filter_map(|s| elf.dynstrtab.get_at(s.st_name)).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["", "first", "first.kd", "second", "second.kd"]);
    assert_eq!(elf.header.e_flags, 0x54c);
}

#[test]
fn llvm_accepts_what_we_write() {
    let (Some(readelf), Some(objdump)) = (tool("llvm-readelf-22"), tool("llvm-objdump-22")) else {
        eprintln!("skipped: LLVM 22 is not installed");
        return;
    };
    for t in Target::all() {
        let path = temp(&format!("writer-{}.co", t.info().name));
        std::fs::write(&path, sample(t, Abi::V5).to_bytes().unwrap()).unwrap();
        let run = |name: &str, args: &[&str]| {
            let o = Command::new(name).args(args).arg(&path).output().unwrap();
            let err = String::from_utf8_lossy(&o.stderr).into_owned();
            assert!(o.status.success() && err.is_empty(), "{name} on {}: {err}", t.info().name);
            String::from_utf8_lossy(&o.stdout).into_owned()
        };
        let all = run(readelf, &["--all", "--notes", "--hash-table", "--gnu-hash-table"]);
        for want in
            [t.info().name, "first.kd", ".value_kind:     hidden_block_count_x", "PROTECTED", ".barewave.weights"]
        {
            assert!(all.contains(want), "{want} is missing for {}", t.info().name);
        }
        let code = run(objdump, &["-d"]);
        assert!(code.contains("<second>:") && code.contains("s_endpgm"), "{code}");
        if let Some(lld) = tool("ld.lld-22") {
            let out = temp(&format!("linked-{}.co", t.info().name));
            let o = Command::new(lld).args(["-shared", "-o"]).arg(&out).arg(&path).output().unwrap();
            assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        }
    }
}

#[test]
fn descriptor_equals_clangs() {
    let Some(clang) = tool("clang-22") else {
        eprintln!("skipped: clang-22 is not installed");
        return;
    };
    let source = temp("descriptor.cl");
    std::fs::write(&source, "__kernel void k(__global int *p) { p[__builtin_amdgcn_workgroup_id_x()] = 1; }").unwrap();
    for t in Target::all() {
        let name = t.info().name;
        // generic targets came with version 6
        for abi in if t.info().generic_version > 0 { &["6"][..] } else { &["4", "5", "6"] } {
            let out = temp(&format!("clang-{name}-{abi}.co"));
            let o = Command::new(clang)
                .args(["-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-O3", "-nogpulib"])
                .args([&format!("-mcpu={name}"), &format!("-mcode-object-version={abi}"), "-o"])
                .args([&out, &source])
                .output()
                .unwrap();
            assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
            let bytes = std::fs::read(&out).unwrap();
            let f = ElfFile::parse(&bytes).unwrap();
            assert_eq!((f.target, f.version.to_string().as_str()), (Some(t), *abi));
            let k = f.kernel("k").unwrap();
            let meta = k.meta.as_ref().unwrap();
            assert_eq!(meta.args[0].kind, ArgKind::GlobalBuffer);
            // The same kernel described to our writer gives the same registers.
            let code = bytes[f.file_range(k.entry, k.code_size).unwrap()].to_vec();
            let mut ours = Kernel::new(t, "k", code);
            ours.vgprs = meta.vgprs - meta.agprs;
            ours.sgprs = meta.sgprs.saturating_sub(6);
            ours.workgroup_ids = k.descriptor.workgroup_ids();
            ours.wgp_mode = k.descriptor.rsrc1 >> 29 & 1 != 0;
            ours.f32_denormals = k.descriptor.float_mode() >> 4 & 3 == 3;
            let p = k.descriptor.properties;
            use barewave::codeobj::Properties;
            ours.user_sgprs.private_segment_buffer = p.contains(Properties::PRIVATE_SEGMENT_BUFFER);
            ours.user_sgprs.flat_scratch_init = p.contains(Properties::FLAT_SCRATCH_INIT);
            ours.user_sgprs.dispatch_ptr = p.contains(Properties::DISPATCH_PTR);
            ours.user_sgprs.queue_ptr = p.contains(Properties::QUEUE_PTR);
            ours.user_sgprs.dispatch_id = p.contains(Properties::DISPATCH_ID);
            let o = CodeObject { target: t, abi: Abi::V5, kernels: vec![ours], sections: vec![] };
            let bytes = o.to_bytes().unwrap();
            let d = ElfFile::parse(&bytes).unwrap().kernels[0].descriptor;
            let hex = |d: &barewave::codeobj::Descriptor| {
                format!("{:#x} {:#x} {:#x} {:?}", d.rsrc1, d.rsrc2, d.rsrc3, d.properties)
            };
            assert_eq!(hex(&d), hex(&k.descriptor), "{name} v{abi}");
            assert_eq!(o.to_bytes().unwrap().len() % 8, 0);
        }
    }
}

#[test]
fn damaged_files_are_refused() {
    let good = sample(Target::GFX1100, Abi::V5).to_bytes().unwrap();
    assert!(ElfFile::parse(b"").is_err());
    assert!(ElfFile::parse(b"\x7fELF").is_err());
    for n in [1, 16, 63, 64, 100, 500, 700, 3000] {
        assert!(ElfFile::parse(&good[..n]).is_err(), "{n} bytes");
    }
    // No byte flipped anywhere in the headers may panic.
    for at in 0..1600 {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let _ = ElfFile::parse(&bad);
        }
    }
    // A section whose end is beyond all addresses (found by fuzzing the listing).
    let table = u64::from_le_bytes(good[40..48].try_into().unwrap()) as usize;
    let count = usize::from(good[60]);
    for header in (1..count).map(|i| table + 64 * i) {
        let mut bad = good.clone();
        bad[header + 16..header + 24].fill(0xff);
        let loaded = bad[header + 8] & 2 != 0;
        assert!(ElfFile::parse(&bad).is_err() || !loaded, "section header at {header}");
    }
    let mut other = good.clone();
    other[18] = 62;
    assert!(ElfFile::parse(&other).unwrap_err().to_string().contains("machine 62"));
    let mut k = Kernel::new(Target::GFX1100, "k", vec![0; 3]);
    let object =
        |k: &Kernel| CodeObject { target: Target::GFX1100, abi: Abi::V5, kernels: vec![k.clone()], sections: vec![] };
    assert!(object(&k).to_bytes().unwrap_err().to_string().contains("kernel `k`: code of 3 bytes"));
    (k.code, k.vgprs) = (vec![0; 4], 300);
    assert!(object(&k).to_bytes().unwrap_err().to_string().contains("300 VGPRs"));
}

/// A file of `kind` (ET_*) whose symbols all have one long name and whose sections of code all are one stretch of bytes.
fn greedy(kind: u16, symbols: usize, sections: usize) -> Vec<u8> {
    let name = [&[0][..], &[b'a'; 1 << 20], &[0]].concat();
    let mut f = b"\x7fELF\x02\x01\x01\x40\x03\0\0\0\0\0\0\0".to_vec();
    let push = |f: &mut Vec<u8>, halves: &[u16]| halves.iter().for_each(|h| f.extend(h.to_le_bytes()));
    push(&mut f, &[kind, 224, 1, 0]);
    let at_names = 64u64;
    let at_symbols = at_names + name.len() as u64;
    let headers = at_symbols + 24 * symbols as u64;
    for v in [0, 0, headers] {
        f.extend(v.to_le_bytes());
    }
    f.extend(0x4cu32.to_le_bytes());
    push(&mut f, &[64, 56, 0, 64, 3 + sections as u16, 1]);
    f.extend(&name);
    for _ in 0..symbols {
        f.extend([1, 0, 0, 0, 0x12, 0, 3, 0]);
        f.extend([0; 16]);
    }
    let mut header = |words: [u32; 2], quads: [u64; 4], links: [u32; 2], rest: [u64; 2]| {
        words.iter().for_each(|w| f.extend(w.to_le_bytes()));
        quads.iter().for_each(|w| f.extend(w.to_le_bytes()));
        links.iter().for_each(|w| f.extend(w.to_le_bytes()));
        rest.iter().for_each(|w| f.extend(w.to_le_bytes()));
    };
    header([0, 0], [0; 4], [0, 0], [0, 0]);
    header([1 << 20, 3], [0, 0, at_names, name.len() as u64], [0, 0], [1, 0]);
    header([1 << 20, 2], [0, 0, at_symbols, 24 * symbols as u64], [1, 0], [8, 24]);
    for _ in 0..sections {
        header([1 << 20, 1], [6, 0, at_names, name.len() as u64], [0, 0], [4, 0]);
    }
    f
}

#[test]
fn files_cannot_ask_for_more_than_they_are() {
    let error = |f: &[u8]| match code_objects(f).map(|e| ElfFile::parse(&e[0].data)) {
        Ok(Ok(_)) => String::new(),
        Ok(Err(e)) | Err(e) => e.to_string(),
    };
    for (kind, name) in [(1, "relocatable"), (3, "linked")] {
        assert_eq!(error(&greedy(kind, 10, 1)), "", "{name}");
        let e = error(&greedy(kind, 20_000, 1));
        assert!(e.contains("more bytes of names than a file like this holds"), "{name}: {e}");
    }
    let e = error(&greedy(3, 1, 2));
    assert!(e.contains("of code overlap"), "{e}");
    let e = error(&greedy(1, 1, 1000));
    assert!(e.contains("more than a file like this holds"), "{e}");
}

/// Code for a generic target has LLVM's flags (of `clang-22 -mcpu=gfx9-generic` and so on), and version 6 of the format.
#[test]
fn generic_targets_have_llvms_flags() {
    let flags = [
        ("gfx9-generic", 0x100_0151),
        ("gfx9-4-generic", 0x100_055f),
        ("gfx10-1-generic", 0x100_0152),
        ("gfx10-3-generic", 0x100_0053),
        ("gfx11-generic", 0x100_0054),
        ("gfx12-generic", 0x100_0059),
    ];
    for (name, e_flags) in flags {
        let target = Target::parse(name).unwrap();
        let bytes = sample(target, Abi::V5).to_bytes().unwrap();
        let file = ElfFile::parse(&bytes).unwrap();
        assert_eq!((file.e_flags, file.version, file.target), (e_flags, 6, Some(target)), "{name}");
        // the devices of the family run it, others do not
        for device in Target::all() {
            let family = device == target || device.info().generic == Some(name);
            assert_eq!(device.runs_code_of(target), family, "{name} on {device}");
        }
    }
    let members = |name: &str| Target::all().filter(|t| t.info().generic == Some(name)).count();
    assert_eq!(flags.map(|f| members(f.0)), [6, 2, 3, 7, 8, 2]);
}
