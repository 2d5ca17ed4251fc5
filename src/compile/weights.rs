//! The bytes of the weights region: constants as the model has them, and data made for kernels, filled in parallel.

use crate::graph::fused::{FusedGraph, Role, Step};
use crate::graph::plan::{MemoryPlan, Place};
use crate::kernels::Blob;
use crate::tensor::HostTensor;
use bytes::Bytes;
use rayon::prelude::*;

enum Source<'a> {
    Tensor(&'a HostTensor),
    Blob(&'a Blob, &'a Step),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Tensor(t) => t.bytes().len(),
            Source::Blob(b, _) => b.len(),
        }
    }
}

/// The weights region of a memory plan; `blobs` are the plan's.
pub(super) fn fill(graph: &FusedGraph, memory: &MemoryPlan, blobs: &[(&Blob, &Step)]) -> Bytes {
    let mut sources: Vec<(usize, Source)> = Vec::new();
    for (t, place) in graph.tensors.iter().zip(&memory.places) {
        if let (Role::Constant(data), Place::Weights(at)) = (&t.role, place) {
            sources.push((*at, Source::Tensor(data)));
        }
    }
    sources.extend(memory.blobs.iter().zip(blobs).map(|(at, (blob, step))| (*at, Source::Blob(blob, step))));
    sources.sort_by_key(|s| s.0);
    // Constants that are equal lie at the same place.
    sources.dedup_by_key(|s| s.0);
    let mut weights = zeroed(memory.weights_bytes);
    let mut rest = &mut weights[..];
    let mut at = 0;
    let mut jobs = Vec::with_capacity(sources.len());
    for (from, source) in sources {
        let (_, tail) = std::mem::take(&mut rest).split_at_mut(from - at);
        let (mine, tail) = tail.split_at_mut(source.len());
        at = from + mine.len();
        jobs.push((mine, source));
        rest = tail;
    }
    jobs.into_par_iter().for_each(|(out, source)| match source {
        Source::Tensor(t) => out.copy_from_slice(t.bytes()),
        Source::Blob(blob, step) => blob.fill(graph, step, out),
    });
    weights.freeze()
}

/// Zeroed memory that becomes [`Bytes`]. Large ones are mapped, with large pages where the system has them: filling a
/// hundred megabytes page by page costs as much as the compiler itself.
enum Zeroed {
    Small(Vec<u8>),
    Mapped(memmap2::MmapMut),
}

fn zeroed(bytes: usize) -> Zeroed {
    const LARGE: usize = 4 << 20;
    match memmap2::MmapMut::map_anon(bytes) {
        Ok(map) if bytes >= LARGE => {
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            Zeroed::Mapped(map)
        }
        _ => Zeroed::Small(vec![0; bytes]),
    }
}

impl Zeroed {
    fn freeze(self) -> Bytes {
        match self {
            Zeroed::Small(v) => v.into(),
            Zeroed::Mapped(map) => Bytes::from_owner(map),
        }
    }
}

impl std::ops::Deref for Zeroed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Zeroed::Small(v) => v,
            Zeroed::Mapped(map) => map,
        }
    }
}

impl std::ops::DerefMut for Zeroed {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Zeroed::Small(v) => v,
            Zeroed::Mapped(map) => map,
        }
    }
}
