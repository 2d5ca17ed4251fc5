//! The way from assembly text to a code object and back: descriptors as llvm-mc writes them, clang's code objects
//! printed in full and assembled again, clang's own assembly text, bundles, and errors.

use crate::support::round_trip::{link, round_trip, section};
use barewave::codeobj::{Descriptor, ElfFile, Family, Listing, Properties, code_objects, code_objects_for, list};
use barewave_isa::{Mode, Target};
use pretty_assertions::assert_eq;
use std::path::{Path, PathBuf};
use std::process::Command;

fn tool(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

fn temp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn run(program: &str, args: &[&str]) -> String {
    let o = Command::new(program).args(args).output().unwrap();
    assert!(o.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// What llvm-mc puts into .rodata.
fn llvm_rodata(target: &str, name: &str, text: &str) -> Vec<u8> {
    let path = |end: &str| temp(&format!("{name}-{target}.{end}")).display().to_string();
    let (source, object) = (path("s"), path("o"));
    std::fs::write(&source, text).unwrap();
    let cpu = format!("-mcpu={target}");
    run("llvm-mc-22", &["-triple=amdgcn-amd-amdhsa", &cpu, "-filetype=obj", &source, "-o", &object]);
    let bytes = std::fs::read(&object).unwrap();
    let elf = goblin::elf::Elf::parse(&bytes).unwrap();
    let h = elf.section_headers.iter().find(|h| elf.shdr_strtab.get_at(h.sh_name) == Some(".rodata")).unwrap();
    bytes[h.sh_offset as usize..][..h.sh_size as usize].to_vec()
}

const SOURCE: &str = "
    __constant int table[4] = {1, 5, 9, 11};
    __global int counter = 3;
    __global int *__global pointer = &counter + 1;
    __global int zeros[100];
    __attribute__((noinline)) int fib(int x) { return x < 2 ? 1 : fib(x - 1) + fib(x - 2); }
    __kernel void lds(__global int *p, int n) {
        __local int l[64];
        int i = __builtin_amdgcn_workitem_id_x();
        l[i] = p[i] + table[n & 3];
        __builtin_amdgcn_s_barrier();
        p[i] = l[63 - i] + pointer[-1] + zeros[n & 63];
    }
    __kernel void recursion(__global int *p) {
        int a[10];
        for (int i = 0; i < 10; i++) a[i] = p[i];
        p[p[11]] = fib(a[p[12]]);
    }
    __kernel __attribute__((reqd_work_group_size(64, 2, 1))) void floats(__global double *x, __global float *y, float s) {
        int i = __builtin_amdgcn_workgroup_id_y() * 64 + __builtin_amdgcn_workitem_id_y();
        x[i] = x[i] * 3.25 + s;
        y[i] = __builtin_sqrtf(y[i]) / s;
    }";

/// Compiles OpenCL C.
fn clang(target: Target, extra: &[&str], out: &Path) {
    // Tests run at the same time: each output has a source of its own.
    let source = out.with_extension("cl");
    std::fs::write(&source, SOURCE).unwrap();
    let cpu = format!("-mcpu={}", target.info().name);
    let mut args = vec!["-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-w", &cpu];
    args.extend(extra);
    let out = out.display().to_string();
    let source = source.display().to_string();
    args.extend(["-o", &out, &source]);
    run("clang-22", &args);
}

#[test]
fn clang_code_objects_survive() {
    if !tool("clang-22") {
        return;
    }
    for t in Target::all() {
        for options in [&["-O2"][..], &["-O0"], &["-O2", "-mwavefrontsize64"], &["-O3", "-mcode-object-version=4"]] {
            if (t.info().wave_size == 64 || t == Target::GFX1250) && options.contains(&"-mwavefrontsize64") {
                continue;
            }
            // generic targets came with version 6
            if t.info().generic_version > 0 && options.contains(&"-mcode-object-version=4") {
                continue;
            }
            let path = temp(&format!("round-{}.co", t.info().name));
            clang(t, options, &path);
            round_trip(&format!("{} {options:?}", t.info().name), &std::fs::read(&path).unwrap(), t);
        }
    }
}

/// clang's assembly text gives what clang's own assembler and lld make of it.
#[test]
fn clang_assembly_text_assembles() {
    if !tool("clang-22") {
        return;
    }
    for t in Target::all() {
        let (text, object) = (temp(&format!("text-{}.s", t.info().name)), temp(&format!("text-{}.co", t.info().name)));
        clang(t, &["-O2", "-S"], &text);
        clang(t, &["-O2"], &object);
        let source = std::fs::read_to_string(&text).unwrap();
        let ours = link(t, Mode::of(t), &source).unwrap_or_else(|e| panic!("{}: {e}", t.info().name));
        let theirs = std::fs::read(&object).unwrap();
        same_code(t, &ours, &theirs);
    }
}

/// Two code objects have the same kernels, code and constants, for the same device.
fn same_code(t: Target, ours: &[u8], theirs: &[u8]) {
    let (a, b) = (ElfFile::parse(ours).unwrap(), ElfFile::parse(theirs).unwrap());
    let name = t.info().name;
    assert_eq!(a.kernels, b.kernels, "{name}");
    assert_eq!((a.e_flags, a.version, &a.target_name), (b.e_flags, b.version, &b.target_name), "{name}");
    for part in [".text", ".rodata"] {
        assert!(section(&a, ours, part) == section(&b, theirs, part), "{name} {part}");
    }
}

/// What clang has not linked is linked as lld does it, and damage to it is an error or another file.
#[test]
fn relocatable_objects_are_linked() {
    if !tool("clang-22") {
        return;
    }
    for t in Target::all() {
        let name = t.info().name;
        let (object, linked) = (temp(&format!("unlinked-{name}.o")), temp(&format!("linked-{name}.co")));
        clang(t, &["-O2", "-c"], &object);
        clang(t, &["-O2"], &linked);
        let (mut bytes, theirs) = (std::fs::read(&object).unwrap(), std::fs::read(&linked).unwrap());
        assert!(ElfFile::parse(&bytes).unwrap_err().to_string().contains("link it first"));
        let ours = code_objects(&bytes).unwrap_or_else(|e| panic!("{name}: {e}")).remove(0).data.into_owned();
        same_code(t, &ours, &theirs);
        let mut random = Random(1);
        for _ in 0..200 {
            let at = random.next() as usize % bytes.len();
            let old = bytes[at];
            bytes[at] = random.next() as u8;
            let _ = code_objects(&bytes);
            let _ = code_objects(&bytes[..at]);
            bytes[at] = old;
        }
        // Relocations of places that their section does not have.
        let quad = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let (table, count) = (quad(40), usize::from(bytes[60]));
        let relocations: Vec<usize> = (0..count)
            .map(|i| table + 64 * i)
            .filter(|&h| bytes[h + 4] == 4 && quad(h + 32) > 0)
            .map(|h| quad(h + 24))
            .collect();
        assert!(!relocations.is_empty(), "{name}");
        for first in relocations {
            for offset in [1 << 20, u64::MAX - 3] {
                let mut bad = bytes.clone();
                bad[first..first + 8].copy_from_slice(&offset.to_le_bytes());
                let e = code_objects(&bad).map(drop).unwrap_err().to_string();
                assert!(e.contains("relocation outside of its section"), "{name}: {e}");
            }
        }
    }
}

/// Code without a single symbol is code all the same.
#[test]
fn an_assembled_file_without_symbols_is_disassembled() {
    if !tool("llvm-mc-22") {
        return;
    }
    let (source, object) = (temp("bare.s"), temp("bare.o"));
    std::fs::write(&source, "s_mov_b32 s0, 1\nv_add_f32 v0, v1, v2\ns_endpgm\n").unwrap();
    let (source, object) = (source.display().to_string(), object.display().to_string());
    run("llvm-mc-22", &["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-filetype=obj", &source, "-o", &object]);
    let bytes = std::fs::read(&object).unwrap();
    let linked = code_objects(&bytes).unwrap().remove(0).data;
    let mut text = Vec::new();
    list(&ElfFile::parse(&linked).unwrap(), &linked, Target::GFX942, &Listing::default(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("\ts_mov_b32 s0, 1\n\tv_add_f32_e32 v0, v1, v2\n\ts_endpgm\n"), "{text}");
}

/// A small generator: the same numbers on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}

#[test]
fn descriptors_equal_llvm_mcs() {
    if !tool("llvm-mc-22") {
        return;
    }
    let mut random = Random(1);
    for t in Target::all() {
        let name = t.info().name;
        let family = Family::of_mach(t.info().elf_mach).unwrap();
        let mut text = format!("\t.amdgcn_target \"amdgcn-amd-amdhsa--{name}\"\n\t.text\n");
        let mut wanted = Vec::new();
        let (mut printed, mut tried) = (0, 0);
        while printed < 40 && tried < 100_000 {
            tried += 1;
            let properties = random.next() as u16 & if family.has_wave32() { 0xc7f } else { 0x87f };
            let mut d = Descriptor {
                lds_bytes: random.next() & 0xffff,
                scratch_bytes: random.next() & 0xfff,
                kernarg_size: random.next() & 0xfff,
                rsrc1: random.next() ^ random.next() << 16,
                rsrc2: random.next() ^ random.next() << 16,
                rsrc3: random.next() & random.next() & random.next(),
                properties: Properties::from_bits_retain(properties),
                ..Descriptor::default()
            };
            // Bits that no target has; the wave size of the run.
            d.rsrc1 &= !0x1b50_0000;
            d.rsrc2 &= !0x80ff_e000;
            d.rsrc3 &= 0x0001_ffff;
            if family.has_wave32() {
                d.rsrc1 &= !(0xf << 6);
                d.properties |= Properties::WAVE32;
            }
            let Some(directives) = d.to_directives(&format!("k{printed}"), family) else { continue };
            text += &format!("k{printed}:\n\ts_endpgm\n\t.section .rodata,\"a\"\n\t.p2align 6\n{directives}\t.text\n");
            wanted.push(d);
            printed += 1;
        }
        assert_eq!(printed, 40, "{name}");
        let data = llvm_rodata(name, "kd", &text);
        for (i, want) in wanted.iter().enumerate() {
            let theirs = Descriptor::from_bytes(&data[64 * i..]).unwrap();
            assert_eq!(theirs, *want, "{name} k{i}\n{}", want.to_directives("k", family).unwrap());
        }
        let ours = link(t, Mode::of(t), &text).unwrap();
        let file = ElfFile::parse(&ours).unwrap();
        for (i, want) in wanted.iter().enumerate() {
            let k = file.kernel(&format!("k{i}")).unwrap();
            assert_eq!(Descriptor { entry_offset: 0, ..k.descriptor }, *want, "{name} k{i}");
        }
    }
}

#[test]
fn defaults_equal_llvm_mcs() {
    if !tool("llvm-mc-22") {
        return;
    }
    for t in Target::all() {
        let name = t.info().name;
        let offset =
            if Family::of_mach(t.info().elf_mach).unwrap().unified_agprs() { ".amdhsa_accum_offset 8" } else { "" };
        let text = format!(
            ".amdgcn_target \"amdgcn-amd-amdhsa--{name}\"\nk: v_mov_b32 v6, s9\n s_endpgm\n.section .rodata,\"a\"\n.p2align 6\n\
             .amdhsa_kernel k\n.amdhsa_next_free_vgpr .amdgcn.next_free_vgpr\n.amdhsa_next_free_sgpr .amdgcn.next_free_sgpr\n\
             {offset}\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n.end_amdhsa_kernel\n"
        );
        let theirs = Descriptor::from_bytes(&llvm_rodata(name, "default", &text)).unwrap();
        let ours = link(t, Mode::of(t), &text).unwrap();
        let k = ElfFile::parse(&ours).unwrap().kernels.remove(0);
        assert_eq!(Descriptor { entry_offset: 0, ..k.descriptor }, theirs, "{name}");
    }
}

#[test]
fn bundles_plain_and_compressed() {
    if !tool("clang-offload-bundler-22") || !tool("clang-22") {
        return;
    }
    let targets = [Target::GFX942, Target::GFX1100];
    let mut inputs = vec!["-input=/dev/null".to_string()];
    let mut names = "-targets=host-x86_64-unknown-linux-gnu".to_string();
    for t in targets {
        let path = temp(&format!("bundle-{}.co", t.info().name));
        clang(t, &["-O2"], &path);
        inputs.push(format!("-input={}", path.display()));
        names += &format!(",hipv4-amdgcn-amd-amdhsa--{}", t.info().name);
    }
    for options in [&[][..], &["-compress"]] {
        let out = temp("bundle.hipfb");
        let output = format!("-output={}", out.display());
        let mut args: Vec<&str> = vec!["-type=o", "-bundle-align=4096", &names, &output];
        args.extend(inputs.iter().map(String::as_str));
        args.extend(options);
        run("clang-offload-bundler-22", &args);
        let mut bytes = std::fs::read(&out).unwrap();
        let entries = code_objects(&bytes).unwrap();
        let ids: Vec<&str> = entries.iter().map(|e| e.target()).collect();
        assert_eq!(ids, ["gfx942", "gfx1100"], "{options:?}");
        let of = |processor| code_objects_for(&bytes, processor).map(|e| e.len()).map_err(|e| e.to_string());
        assert_eq!((of(None), of(Some("gfx1100"))), (Ok(2), Ok(1)));
        assert!(of(Some("gfx906")).unwrap_err().contains("no code for gfx906; it has: gfx942, gfx1100"));
        for (e, t) in entries.iter().zip(targets) {
            assert_eq!(e.data[..], std::fs::read(temp(&format!("bundle-{}.co", t.info().name))).unwrap());
        }
        // Damage gives an error or other contents, never a panic.
        for cut in (0..bytes.len().min(400)).chain([bytes.len() / 2, bytes.len() - 1]) {
            let _ = code_objects(&bytes[..cut]);
            let old = bytes[cut];
            bytes[cut] ^= 0xff;
            let _ = code_objects(&bytes);
            bytes[cut] = old;
        }
    }
}

#[test]
fn what_cannot_be_linked_says_why() {
    let t = Target::GFX942;
    let fails = |source: &str| link(t, Mode::of(t), source).unwrap_err();
    let kernel = |body: &str| {
        format!(
            "k: s_endpgm\n.rodata\n.amdhsa_kernel k\n.amdhsa_next_free_vgpr 8\n.amdhsa_next_free_sgpr 8\n{body}\n.end_amdhsa_kernel\n"
        )
    };
    assert!(fails(&kernel("")).contains("accum_offset is missing"));
    assert!(fails(&kernel(".amdhsa_accum_offset 6")).contains("a multiple of 4"));
    assert!(
        fails(&kernel(".amdhsa_accum_offset 4\n.amdhsa_wavefront_size32 1"))
            .contains("line 7: .amdhsa_wavefront_size32 does not exist")
    );
    assert!(fails(&kernel(".amdhsa_accum_offset 4\n.amdhsa_ieee_mode 2")).contains("does not fit 1 bits"));
    assert!(
        fails(&kernel(".amdhsa_accum_offset 4\n.amdhsa_user_sgpr_count 1\n.amdhsa_user_sgpr_dispatch_ptr 1"))
            .contains("need 2")
    );
    assert!(fails(".globl x\ns_add_u32 s0, s0, x@rel32@lo+4\n").contains("`x` is not defined"));
    assert!(fails(".amdgpu_metadata\n[: }\n.end_amdgpu_metadata\n").contains("no YAML"));
    assert!(fails(".amdhsa_code_object_version 3\n").contains("4, 5 or 6"));
    assert!(fails("s_nop zero\n").contains("1:7"));
}
