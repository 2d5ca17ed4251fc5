//! The metadata note: MessagePack maps that say what a runtime needs to know to launch a kernel.

use super::{Abi, Error, Family, Kernel};
use crate::text::printable;
use rmpv::Value;

/// What an argument is (`.value_kind`).
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum ArgKind {
    /// Address of global memory.
    GlobalBuffer,
    /// Bytes copied into the argument block.
    ByValue,
    /// Pointer into LDS that is allocated at launch.
    DynamicSharedPointer,
    /// A value that the runtime supplies, by its name without `hidden_` (`block_count_x`, `group_size_y`, ...).
    Hidden(String),
    /// Any other kind, by its name (`image`, `sampler`, ...).
    Other(String),
}

/// One kernel argument.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Arg {
    /// Name in the source, or empty.
    pub name: String,
    /// Byte offset in the argument block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// What it is.
    pub kind: ArgKind,
}

impl Arg {
    /// A pointer to global memory.
    pub fn buffer(name: impl Into<String>, offset: u32) -> Arg {
        Arg { name: name.into(), offset, size: 8, kind: ArgKind::GlobalBuffer }
    }
    /// A value of `size` bytes.
    pub fn value(name: impl Into<String>, offset: u32, size: u32) -> Arg {
        Arg { name: name.into(), offset, size, kind: ArgKind::ByValue }
    }
}

impl std::fmt::Display for ArgKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_name())
    }
}

impl ArgKind {
    fn to_name(&self) -> String {
        match self {
            ArgKind::GlobalBuffer => "global_buffer".into(),
            ArgKind::ByValue => "by_value".into(),
            ArgKind::DynamicSharedPointer => "dynamic_shared_pointer".into(),
            ArgKind::Hidden(n) => format!("hidden_{n}"),
            ArgKind::Other(n) => n.clone(),
        }
    }
    fn of_name(name: &str) -> ArgKind {
        match name {
            "global_buffer" => ArgKind::GlobalBuffer,
            "by_value" => ArgKind::ByValue,
            "dynamic_shared_pointer" => ArgKind::DynamicSharedPointer,
            n => match n.strip_prefix("hidden_") {
                Some(h) => ArgKind::Hidden(h.into()),
                None => ArgKind::Other(n.into()),
            },
        }
    }
}

/// Metadata of one kernel as read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelMeta {
    /// Name of the kernel.
    pub name: String,
    /// Symbol of its descriptor.
    pub symbol: String,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Size of the argument block, bytes.
    pub kernarg_size: u32,
    /// Static LDS, bytes.
    pub lds_bytes: u32,
    /// Scratch, bytes per lane.
    pub scratch_bytes: u32,
    /// Lanes of a wave.
    pub wave_size: u32,
    /// SGPRs used.
    pub sgprs: u32,
    /// VGPRs used (AGPRs included where they share a file).
    pub vgprs: u32,
    /// AGPRs used.
    pub agprs: u32,
    /// Largest number of workitems in a workgroup.
    pub max_flat_workgroup_size: u32,
    /// Exact workgroup size demanded.
    pub reqd_workgroup_size: Option<[u32; 3]>,
    /// The stack may grow at run time.
    pub dynamic_stack: bool,
}

fn map(entries: Vec<(&str, Value)>) -> Value {
    let mut entries: Vec<_> = entries.into_iter().map(|(k, v)| (Value::from(k), v)).collect();
    entries.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
    Value::Map(entries)
}

/// Builds the note's contents for `kernels`.
pub(super) fn build(abi: Abi, processor: &str, mach: u32, kernels: &[Kernel]) -> Vec<u8> {
    let family = Family::of_mach(mach);
    let kernel = |k: &Kernel| {
        let args = k.args.iter().map(|a| {
            let mut m = vec![
                (".offset", Value::from(a.offset)),
                (".size", Value::from(a.size)),
                (".value_kind", Value::from(a.kind.to_name())),
            ];
            if a.kind == ArgKind::GlobalBuffer {
                m.push((".address_space", Value::from("global")));
            }
            if !a.name.is_empty() {
                m.push((".name", Value::from(a.name.as_str())));
            }
            map(m)
        });
        let unified = family.is_some_and(Family::unified_agprs);
        let vgprs = match (unified, k.agprs) {
            (true, 1..) => k.vgprs.next_multiple_of(4) + k.agprs,
            // Of two files the fuller one counts.
            _ => k.vgprs.max(k.agprs),
        };
        let mut m = vec![
            (".args", Value::Array(args.collect())),
            (".group_segment_fixed_size", Value::from(k.lds_bytes)),
            (".kernarg_segment_align", Value::from(8)),
            (".kernarg_segment_size", Value::from(k.kernarg_size)),
            (".max_flat_workgroup_size", Value::from(k.max_flat_workgroup_size)),
            (".name", Value::from(k.name.as_str())),
            (".private_segment_fixed_size", Value::from(k.scratch_bytes)),
            (".sgpr_count", Value::from(k.sgprs + if family.is_some_and(Family::counts_sgprs) { 6 } else { 2 })),
            (".sgpr_spill_count", Value::from(0)),
            (".symbol", Value::from(format!("{}.kd", k.name))),
            (".vgpr_count", Value::from(vgprs)),
            (".vgpr_spill_count", Value::from(0)),
            (".wavefront_size", Value::from(if k.wave32 { 32 } else { 64 })),
        ];
        if unified || k.agprs > 0 {
            m.push((".agpr_count", Value::from(k.agprs)));
        }
        if let Some(size) = k.reqd_workgroup_size {
            m.push((".reqd_workgroup_size", Value::Array(size.iter().map(|&s| Value::from(s)).collect())));
        }
        if abi != Abi::V4 {
            m.push((".uses_dynamic_stack", Value::from(false)));
        }
        map(m)
    };
    let version = if abi == Abi::V4 { [1, 1] } else { [1, 2] };
    let root = map(vec![
        ("amdhsa.kernels", Value::Array(kernels.iter().map(kernel).collect())),
        ("amdhsa.target", Value::from(format!("amdgcn-amd-amdhsa--{processor}"))),
        ("amdhsa.version", Value::Array(version.iter().map(|&v| Value::from(v)).collect())),
    ]);
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, &root).expect("writing to memory cannot fail");
    out
}

fn field<'a>(m: &'a Value, key: &str) -> Option<&'a Value> {
    m.as_map()?.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v)
}

fn number(m: &Value, key: &str) -> u32 {
    field(m, key).and_then(Value::as_u64).and_then(|v| u32::try_from(v).ok()).unwrap_or(0)
}

fn text(m: &Value, key: &str) -> String {
    field(m, key).and_then(Value::as_str).map(printable).unwrap_or_default().into_owned()
}

/// What a note says.
#[derive(Default)]
pub(super) struct Note {
    pub(super) kernels: Vec<KernelMeta>,
    pub(super) target: String,
    /// Formats of printf, as they are.
    pub(super) formats: Vec<String>,
}

/// Reads the note's contents.
pub(super) fn parse(bytes: &[u8]) -> Result<Note, Error> {
    let root = rmpv::decode::read_value_with_max_depth(&mut &*bytes, 16).map_err(|e| Error::Metadata(e.to_string()))?;
    if root.as_map().is_none() {
        return Err(Error::Metadata("the root is not a map".into()));
    }
    let target = text(&root, "amdhsa.target");
    let list = match field(&root, "amdhsa.kernels") {
        None => &[][..],
        Some(v) => v.as_array().ok_or_else(|| Error::Metadata("amdhsa.kernels is not an array".into()))?.as_slice(),
    };
    let kernels = list.iter().map(|k| {
        let args = field(k, ".args").and_then(Value::as_array).map(Vec::as_slice).unwrap_or(&[]);
        let args = args.iter().map(|a| Arg {
            name: text(a, ".name"),
            offset: number(a, ".offset"),
            size: number(a, ".size"),
            kind: ArgKind::of_name(&text(a, ".value_kind")),
        });
        let reqd = field(k, ".reqd_workgroup_size").and_then(Value::as_array).and_then(|a| {
            let v: Vec<u32> = a.iter().filter_map(|v| u32::try_from(v.as_u64()?).ok()).collect();
            <[u32; 3]>::try_from(v).ok()
        });
        KernelMeta {
            name: text(k, ".name"),
            symbol: text(k, ".symbol"),
            args: args.collect(),
            kernarg_size: number(k, ".kernarg_segment_size"),
            lds_bytes: number(k, ".group_segment_fixed_size"),
            scratch_bytes: number(k, ".private_segment_fixed_size"),
            wave_size: number(k, ".wavefront_size"),
            sgprs: number(k, ".sgpr_count"),
            vgprs: number(k, ".vgpr_count"),
            agprs: number(k, ".agpr_count"),
            max_flat_workgroup_size: number(k, ".max_flat_workgroup_size"),
            reqd_workgroup_size: reqd,
            dynamic_stack: field(k, ".uses_dynamic_stack").and_then(Value::as_bool).unwrap_or(false),
        }
    });
    let formats = field(&root, "amdhsa.printf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or(&[]);
    let formats = formats.iter().filter_map(|f| f.as_str().map(str::to_string)).collect();
    Ok(Note { kernels: kernels.collect(), target, formats })
}
