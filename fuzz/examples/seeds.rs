//! First inputs of the fuzz targets, written to `corpus/`: golden vectors as bytes and as text, and code objects: our
//! own of every target, assembled ones with data and relocations, and, where clang and its bundler are installed,
//! theirs of code object versions 4 to 6, in a bundle and in a compressed one.

use barewave::codeobj::{Abi, Arg, CodeObject, Kernel, link_assembly};
use barewave::onnx::Model;
use barewave::tensor::{HostTensor, ImageOptions, save};
use barewave::{Compiler, Options, Shapes};
use barewave_isa::{Mode, Target, assemble, parse};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A kernel with data, a table of addresses and metadata.
const SOURCE: &str = "
k: s_endpgm
f: s_setpc_b64 s[30:31]
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  ACCUM
.end_amdhsa_kernel
.data
table: .quad k
.quad f+4
.asciz \"text\"
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--TARGET
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 8
    .args: [{.offset: 0, .size: 8, .value_kind: global_buffer}]
.end_amdgpu_metadata
";

/// A trace of RDNA and one of CDNA, and a line of each table of measured times.
const MEASUREMENTS: &[(&str, &str)] = &[
    (
        "rdna",
        "=== event 0 gfx1100\n100: INST wave=0 op=SMEM_RD s_load_b64(s[0:1], s[0:1])\n130: IMMEDIATE wave=0 s_waitcnt(64519)\n\
         131: VALUINST wave=0 v_add_f32_e32(v[1], v[1], v[2])\n140: WAVEEND wave=0 simd=0 cu=0 s_endpgm()\n",
    ),
    (
        "cdna",
        "=== event 0 gfx950\n100: INST_CDNA wave=0 simd=1 op=VALU v_add_f32_e32(v[1], v[1], v[2])\n\
         104: IMMEDIATE_CDNA wave=0 simd=1 s_nop(0)\n",
    ),
    (
        "rocblas",
        "gfx,layout,dtype,out,compute,M,N,B,K,value,unit,MT0,MT1,DU,MI,WG,TT,GSU,LSU,PGR,PLR,VW,GRVW\n\
         gfx90a,NN,f32,f32,f32,128,128,1,64,12,pct,64,64,16,[],\"[16, 16, 1]\",\"[4, 4]\",1,1,false,1,4,4\n",
    ),
    (
        "miopen",
        "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms,igemm_ms,winograd_ms\n\
         gfx90878.HIP,2d,64,56,56,3x3,64,16,1x1,1x1,1x1,NCHW,FP32,1,x,0.5,0.52,0.5\n",
    ),
    ("aiter", "gfx,cu,m,n,k,kind,dtype,best_us\ngfx950,256,64,5120,256,bf16,torch.bfloat16,62.1\n"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = here.join("corpus");
    for kind in ["decoder", "assembler", "elf", "model", "tensors", "plan", "memory", "measurements"] {
        fs::create_dir_all(corpus.join(kind))?;
    }
    for (number, target) in (0u8..).zip(Target::all()) {
        let name = target.info().name;
        if let Ok(golden) = fs::read_to_string(here.join(format!("../isa/tests/golden/{name}.tsv"))) {
            let texts: Vec<&str> = golden.lines().filter_map(|l| l.split('\t').nth(1)).collect();
            for (i, part) in texts.chunks(8).enumerate() {
                fs::write(
                    corpus.join(format!("assembler/{name}.{i}")),
                    [&[number], part.join("\n").as_bytes()].concat(),
                )?;
                let code = part.iter().filter_map(|t| parse(target, Mode::of(target), t).ok());
                let code = code.flat_map(|raw| raw.bytes().to_vec());
                fs::write(
                    corpus.join(format!("decoder/{name}.{i}")),
                    [number].into_iter().chain(code).collect::<Vec<_>>(),
                )?;
            }
        }
        let mut kernel = Kernel::new(target, "k", vec![0x00, 0x00, 0x81, 0xbf]);
        (kernel.vgprs, kernel.sgprs, kernel.kernarg_size) = (8, 16, 12);
        kernel.args = vec![Arg::buffer("x", 0), Arg::value("n", 8, 4)];
        let abi = [Abi::V4, Abi::V5, Abi::V6][usize::from(number) % 3];
        let file = CodeObject { target, abi, kernels: vec![kernel], sections: Vec::new() }.to_bytes()?;
        fs::write(corpus.join(format!("elf/{name}")), file)?;
        let accum = if target.info().unified_agprs { ".amdhsa_accum_offset 8" } else { "" };
        let source = SOURCE.replace("ACCUM", accum).replace("TARGET", name);
        let assembled = assemble(target, Mode::of(target), &source).map_err(|e| format!("{name}: {e:?}"))?;
        fs::write(corpus.join(format!("elf/{name}.s")), link_assembly(target, Mode::of(target), &assembled, abi)?)?;
    }
    small(&here, &corpus)?;
    if let Err(e) = foreign(&corpus.join("elf")) {
        eprintln!("no code objects of clang: {e}");
    }
    Ok(())
}

/// Small models, compiled ones, arrays and pictures.
fn small(here: &Path, corpus: &Path) -> Result<(), Box<dyn Error>> {
    for (name, text) in MEASUREMENTS {
        fs::write(corpus.join(format!("measurements/{name}")), text)?;
    }
    let examples = here.join("../examples");
    for name in ["vector_add/vector_add.onnx", "digits/digits.onnx"] {
        let path = examples.join(name);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        fs::copy(&path, corpus.join(format!("model/{stem}")))?;
        let model = Model::load(&path)?;
        for target in [Target::GFX942, Target::GFX1100] {
            let compiled = Compiler::new(target, Options::default()).compile(&model, &Shapes::default())?;
            compiled.save(&corpus.join(format!("plan/{stem}.{}", target.info().name)), Abi::V5)?;
        }
    }
    let t = HostTensor::from_f32(&[2, 3], &[1.0, -2.0, 0.5, 1e30, 0.0, -0.0]);
    let place = env::temp_dir();
    for (format, kind) in [(0u8, "npy"), (1, "npz"), (2, "pb")] {
        let file = place.join(format!("barewave-seed-{}.{kind}", std::process::id()));
        save(&file, &[("x", &t)], &ImageOptions::default())?;
        fs::write(corpus.join(format!("tensors/{kind}")), [&[format][..], &fs::read(&file)?].concat())?;
        fs::remove_file(file)?;
    }
    for (name, file) in [("png", "examples/digits/7.png"), ("jpg", "tests/models/gray.jpg")] {
        fs::write(corpus.join(format!("tensors/{name}")), [&[3][..], &fs::read(here.join("..").join(file))?].concat())?;
    }
    fs::write(corpus.join("tensors/spec"), b"\x04x=1x3xf32=random:7")?;
    let operations: Vec<u8> = (0..60u8).flat_map(|i| [i, i.wrapping_mul(7), 1, 0, 0, i, 0, 0, 0, i & 2]).collect();
    fs::write(corpus.join("memory/some"), operations)?;
    Ok(())
}

fn run(tool: &str, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let status = Command::new(tool).args(arguments).status().map_err(|e| format!("{tool}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{tool}: {status}").into()) }
}

/// Code objects of clang-22, and bundles of them.
fn foreign(out: &Path) -> Result<(), Box<dyn Error>> {
    let source = env::temp_dir().join(format!("barewave-seed-{}.cl", std::process::id()));
    fs::write(&source, "kernel void k(global float *x, int n) { x[__builtin_amdgcn_workitem_id_x()] += n; }\n")?;
    let path = |p: &PathBuf| p.display().to_string();
    let mut inputs = vec!["-input=/dev/null".to_string()];
    let mut names = "-targets=host-x86_64-unknown-linux-gnu".to_string();
    for (target, version) in [("gfx906", 4), ("gfx942", 5), ("gfx1100", 5), ("gfx1201", 6)] {
        let file = out.join(format!("clang.{target}"));
        let (cpu, abi) = (format!("-mcpu={target}"), format!("-mcode-object-version={version}"));
        let options = ["--target=amdgcn-amd-amdhsa", "-nogpulib", "-O2", &cpu, &abi, "-x", "cl", &path(&source), "-o"];
        run("clang-22", &[&options[..], &[&path(&file)]].concat())?;
        let unlinked = path(&out.join(format!("unlinked.{target}")));
        run("clang-22", &[&["-c"], &options[..], &[&unlinked]].concat())?;
        inputs.push(format!("-input={}", path(&file)));
        names += &format!(",hipv4-amdgcn-amd-amdhsa--{target}");
    }
    for (name, option) in [("bundle", "-bundle-align=64"), ("compressed", "-compress")] {
        let output = format!("-output={}", path(&out.join(name)));
        let mut arguments = vec!["-type=o", &names, &output, option];
        arguments.extend(inputs.iter().map(String::as_str));
        run("clang-offload-bundler-22", &arguments)?;
    }
    fs::remove_file(source)?;
    Ok(())
}
