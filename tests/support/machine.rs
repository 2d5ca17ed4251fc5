//! Assembly that runs on the emulated device: a body of instructions between loads of its inputs and stores of its results.

use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave_isa::{Mode, Target, parse};

/// Target by name.
pub fn target(name: &str) -> Target {
    Target::parse(name).unwrap()
}

/// Registers with halves (`v1.l`).
pub fn true16(t: Target) -> bool {
    t.info().wave_size == 32 && t.info().elf_mach >= 0x41
}

/// How a body runs.
#[derive(Clone, Copy)]
pub struct Setup {
    pub target: Target,
    /// Lanes of a wave.
    pub lanes: usize,
    /// Waves of a workgroup.
    pub waves: usize,
    /// Bytes of LDS.
    pub lds: u32,
    /// Bytes of private memory of a lane.
    pub scratch: u32,
}

/// One wave of the target's usual size a workgroup, 4096 bytes of LDS.
pub fn setup(target: Target) -> Setup {
    Setup { target, lanes: target.info().wave_size as usize, waves: 1, lds: 4096, scratch: 0 }
}

/// [`Setup::run`] with the usual set-up.
pub fn run(t: Target, body: &[&str], inputs: &[u32], words: usize, results: usize) -> Vec<u32> {
    setup(t).run(body, inputs, words, results)
}

impl Setup {
    fn mode(&self) -> Mode {
        Mode { wave64: self.lanes == 64, true16: true16(self.target) }
    }

    /// True when the target has the instruction.
    pub fn knows(&self, text: &str) -> bool {
        parse(self.target, self.mode(), text).is_ok()
    }

    /// The first of two spellings where it is one of the target's, else the second.
    pub fn either(&self, a: &str, b: &str) -> String {
        String::from(if self.knows(a) { a } else { b })
    }

    /// Runs `body` on every `words` input words: they are in v3 and its successors, the results are taken from the
    /// register that `OUT` stands for (v8 or higher) on, `results` words. v0 is the item's number, v2 the byte offset of its
    /// results; s[4:5] and s[6:7] are the addresses of inputs and results. `{OUT+1}` stands for `OUT`'s successor.
    pub fn run(&self, body: &[&str], inputs: &[u32], words: usize, results: usize) -> Vec<u32> {
        let t = self.target;
        let name = t.info().name;
        let group = self.lanes * self.waves;
        let mut code = Vec::new();
        let mut put = |text: &str| {
            let raw = parse(t, self.mode(), text).unwrap_or_else(|e| panic!("{name}: {text}: {}", e.message));
            code.extend_from_slice(&raw.bytes());
        };
        put(&self.either("s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_load_b128 s[4:7], s[0:1], 0x0"));
        put("v_and_b32 v0, 0x3ff, v0");
        // Groups come behind the argument pointer, behind 15 preloaded registers, or in ttmp9.
        let id = match (t.info().architected_sgprs, t.info().min_preloaded_sgprs) {
            (true, _) => "ttmp9",
            (_, 0) => "s2",
            _ if self.lanes == 64 => "s2",
            _ => "s15",
        };
        put(&format!("s_mul_i32 s8, {id}, {group}"));
        let add = self.either("v_add_u32 v0, s8, v0", "v_add_nc_u32 v0, s8, v0");
        put(&if self.knows(&add) { add } else { "v_add_u32 v0, vcc, s8, v0".into() });
        for (reg, n) in [(1, words), (2, results)] {
            put(&format!("s_movk_i32 s9, {}", 4 * n));
            put(&format!("v_mul_lo_u32 v{reg}, v0, s9"));
        }
        // gfx8 has no global instructions: flat ones with the whole address.
        let flat = !self.knows("global_load_dword v3, v1, s[4:5]") && !self.knows("global_load_b32 v3, v1, s[4:5]");
        let address = |lo: usize, base: usize, offset: &str, n: usize| {
            let mut lines =
                vec![format!("s_add_u32 s10, s{base}, {}", 4 * n), format!("s_addc_u32 s11, s{}, 0", base + 1)];
            lines.push(format!("v_mov_b32 v{}, s11", lo + 1));
            lines.push(format!("v_add_u32 v{lo}, vcc, s10, {offset}"));
            lines.push(format!("v_addc_u32 v{}, vcc, 0, v{}, vcc", lo + 1, lo + 1));
            lines
        };
        for w in 0..words {
            let tail = format!("v{}, v1, s[4:5] offset:{}", 3 + w, 4 * w);
            if flat {
                address(90, 4, "v1", w).iter().for_each(|l| put(l));
                put(&format!("flat_load_dword v{}, v[90:91]", 3 + w));
            } else {
                put(&self.either(&format!("global_load_dword {tail}"), &format!("global_load_b32 {tail}")));
            }
        }
        let out = (3 + words).next_multiple_of(8).max(8);
        for line in body {
            let mut line = line.to_string();
            for k in 0..40 {
                line = line.replace(&format!("{{OUT+{k}}}"), &(out + k).to_string());
            }
            put(&line.replace("OUT", &out.to_string()));
        }
        for w in 0..results {
            let tail = format!("v2, v{}, s[6:7] offset:{}", out + w, 4 * w);
            if flat {
                address(90, 6, "v2", w).iter().for_each(|l| put(l));
                put(&format!("flat_store_dword v[90:91], v{}", out + w));
            } else {
                put(&self.either(&format!("global_store_dword {tail}"), &format!("global_store_b32 {tail}")));
            }
        }
        put("s_endpgm");
        let mut k = Kernel::new(t, "k", code);
        (k.vgprs, k.sgprs, k.kernarg_size, k.workgroup_ids) = (96, 64, 16, [true, false, false]);
        k.lds_bytes = self.lds;
        k.scratch_bytes = self.scratch;
        k.wave32 = self.lanes == 32;
        let elf = CodeObject { target: t, abi: Abi::V5, kernels: vec![k], sections: vec![] }.to_bytes().unwrap();
        let device = EmuDevice::with_memory(t, 1 << 28).unwrap();
        let module = device.load(&elf).unwrap();
        let items = inputs.len() / words;
        assert_eq!(items % group, 0);
        let size = 4 * (items * results) as u64;
        let (from, to) = (device.alloc(4 * inputs.len() as u64).unwrap(), device.alloc(size).unwrap());
        device.write(from, &inputs.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        device.fill(to, 0, size).unwrap();
        let args: Vec<u8> = [from, to].iter().flat_map(|a| a.to_le_bytes()).collect();
        let (grid, block) = ([(items / group) as u32, 1, 1], [group as u32, 1, 1]);
        device
            .launch(&module.kernel("k").unwrap(), grid, block, &args, &LaunchOptions::default())
            .unwrap_or_else(|f| panic!("{name}: {f}"));
        let mut bytes = vec![0; size as usize];
        device.read(to, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
    }
}

/// Numbers that look random.
pub fn random(seed: u32, n: usize) -> Vec<u32> {
    let mut x = seed;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            x ^ x >> 16
        })
        .collect()
}

/// Lines of a body that was put together.
pub fn lines(body: &[String]) -> Vec<&str> {
    body.iter().map(String::as_str).collect()
}
