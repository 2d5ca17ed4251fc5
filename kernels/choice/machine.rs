//! What the choice of tiles knows of a target, and the questions about it that need no product: room, latencies, lines that loads ask for.

use super::lines::{Lines, Side, rounds_kept};
use super::{Extents, Round};
use crate::kernels::tile::Tile;
use crate::mir::{Type, paired_multiply_adds};
use barewave_isa::{Op, Resources, Target, op};
use barewave_timing::Chip;

/// Cycles until LDS has answered a wide read over those for a narrow one; and these, where nothing is known.
const LDS_ANSWER: f64 = 1.75;
const LDS_LATENCY: f64 = 52.0;

/// Bytes per cycle of a bank of LDS.
const LDS_BANK: f64 = 4.0;

/// What the choice knows of a target.
pub(in crate::kernels) struct Machine {
    pub(super) target: Target,
    /// Bytes per cycle of the L2 cache when all ask, and cycles until it answers.
    pub l2: f64,
    pub l2_latency: f64,
    /// Cycles until what the whole device sees is answered: by that cache, or behind all of them where dies have their own.
    pub device_latency: f64,
    /// Bytes per cycle that LDS gives a SIMD that reads.
    pub lds: f64,
    /// Bytes per cycle from memory.
    pub memory: f64,
    /// Bytes that stay in a cache before memory which all compute units share; infinite where nothing is known.
    pub cache: f64,
    /// All compute units share the second-level cache.
    pub one_cache: bool,
    /// Dies with a second-level cache each.
    pub dies: u32,
    /// What is written stays there too.
    pub takes_results: bool,
    /// Cycles between two waves that begin, of all engines together.
    pub dispatch: f64,
    /// Cycles of a SIMD for a wave's instruction.
    pub issue: f64,
    /// Bytes of a line of the first-level cache, and how many it has.
    pub line: u32,
    lines: u32,
    /// Bytes per cycle that the first-level cache gives a compute unit.
    pub l1: f64,
    /// Cycles until memory answers, and until what nobody has touched comes from it.
    pub dram: f64,
    pub latency: f64,
    /// Cycles until the first workgroups have their arguments, which come by a scalar load, and their first elements.
    pub begins: f64,
    /// Cycles of a launch, and of the beginning and end of a workgroup: its arguments and first loads, and its stores.
    pub launch: f64,
    pub ends: f64,
}

/// Other instructions run in the shadow of a matrix instruction, also those of LDS and memory.
pub(in crate::kernels) fn has_matrix_shadow(target: Target) -> bool {
    Chip::of(target).is_some_and(|c| c.matrix_shadow > 0.0)
}

/// Cycles until LDS has answered a wide read, with others under way.
pub(in crate::kernels) fn lds_answer(target: Target) -> f64 {
    LDS_ANSWER * Chip::of(target).map_or(LDS_LATENCY, |c| c.lds_latency)
}

impl Machine {
    pub fn of(target: Target) -> Machine {
        let simds = f64::from(target.info().simds);
        let issue = target.op(op::V_MOV_B32).map_or(1.0, |i| f64::from(i.busy.max(1)));
        match Chip::of(target) {
            Some(c) => Machine {
                target,
                l2: c.l2_bytes_clk * c.l2_share,
                l2_latency: c.l2_hit,
                device_latency: if c.dies > 1.0 { c.mall_hit.max(c.l2_hit) } else { c.l2_hit },
                lds: c.lds_banks * LDS_BANK / simds,
                memory: c.dram_bytes_clk(),
                one_cache: c.dies <= 1.0,
                dies: c.dies as u32,
                cache: c.mall_mib.max(c.l2_mib) * 1048576.0,
                takes_results: c.mall_writes > 0.0,
                dispatch: c.dispatch(1.0, c.cus),
                issue,
                line: c.l1_line as u32,
                lines: (c.l1_kib * 1024.0 / c.l1_line) as u32,
                l1: c.l1_bytes_clk,
                launch: c.launch_us * c.boost_mhz,
                dram: c.dram,
                latency: c.vmem_cold + c.dram,
                begins: c.smem_cold + c.dram,
                ends: 1000.0 + c.vmem_cold + c.dram,
            },
            None => {
                let most = f64::INFINITY;
                Machine {
                    target,
                    l2: most,
                    l2_latency: 300.0,
                    device_latency: 300.0,
                    lds: 128.0 / simds,
                    memory: most,
                    cache: most,
                    one_cache: true,
                    dies: 1,
                    takes_results: false,
                    dispatch: 0.0,
                    issue,
                    line: 128,
                    lines: 128,
                    l1: 64.0,
                    launch: 8000.0,
                    dram: 300.0,
                    latency: 1500.0,
                    begins: 1500.0,
                    ends: 2500.0,
                }
            }
        }
    }

    /// Cycles until a load is answered where so many bytes are gone through again and again.
    pub fn answer(&self, bytes: f64) -> f64 {
        let Some(c) = Chip::of(self.target) else { return self.l2_latency };
        match bytes / 1048576.0 {
            mib if mib < c.l2_mib => c.l2_hit,
            mib if mib < c.mall_mib => c.mall_hit.max(c.l2_hit),
            _ => c.dram,
        }
    }

    /// What a launch has read or written so much of is still in a cache for the next.
    pub fn keeps(&self, bytes: f64) -> bool {
        self.one_cache && self.takes_results && bytes < self.cache
    }

    /// Lanes of a wave.
    pub fn lanes(&self) -> u32 {
        self.target.info().wave_size
    }

    /// Cycles of the first-level cache for a line.
    pub fn of_a_line(&self) -> f64 {
        (f64::from(self.line) / self.l1).max(1.0)
    }

    /// Cycles of a SIMD for a wave's multiply-add of a type.
    pub fn multiply_add(&self, t: Type) -> f64 {
        multiply_add(self.target, t)
    }

    /// Workgroups that share a compute unit, so that one multiplies while others wait or move.
    pub(super) fn resident(&self, round: &Round) -> f64 {
        self.fit(round.waves, round.vgprs, round.lds)
    }

    /// Whether a compute unit has the LDS of a workgroup, and its instructions reach the registers of a workitem, of which so many are
    /// sums in accumulation registers of the same file.
    pub fn holds(&self, round: &Round, accumulated: u32) -> bool {
        self.reaches(round.vgprs, accumulated) && round.lds <= self.target.info().lds_bytes
    }

    /// Whether instructions reach so many registers of a workitem, of which so many are sums in accumulation registers of the same file.
    pub fn reaches(&self, vgprs: u32, accumulated: u32) -> bool {
        let t = self.target.info();
        let apart = if t.unified_agprs { t.max_agprs.min(accumulated) } else { 0 };
        vgprs <= t.named_vgprs() + apart
    }

    /// Workgroups of so many waves, registers of a workitem and bytes of LDS that a compute unit holds. Of a file that vector and
    /// accumulation registers share, what instructions do not reach as the former is taken as the latter.
    pub fn fit(&self, waves: u32, vgprs: u32, lds_bytes: u32) -> f64 {
        let t = self.target.info();
        let (wave_size, workgroup_size) = (t.wave_size, waves * t.wave_size);
        let agprs = if t.unified_agprs { vgprs.saturating_sub(t.named_vgprs()).min(t.max_agprs) } else { 0 };
        let vgprs = vgprs.min(t.named_vgprs());
        let light = Resources { wave_size, workgroup_size, vgprs, agprs, sgprs: 0, lds_bytes, wgp_mode: false };
        f64::from(self.target.occupancy(&light).workgroups.max(1))
    }

    /// Bytes per k that a workgroup asks of L2: see [`Machine::asked`]. Of a row that is dense along the width whole lines come, of which
    /// others have the rest.
    pub fn loaded(&self, tile: &Tile, e: &Extents) -> u32 {
        let asked = self.asked(tile, e, |_, lines| lines);
        let Some(reach) = e.gathered.and_then(|g| g.reach) else { return asked };
        // Instead of columns that lie side by side.
        let (bytes, (width, all)) = (tile.types.stored_bytes(), e.along_image(tile));
        let columns = (width as usize).min(all);
        let gathered = reach.bytes(columns, (bytes, self.line));
        (asked.saturating_sub(columns as u32 * bytes) + gathered as u32).max(1)
    }

    /// The same of the first-level cache, which gives of a line what a load takes.
    pub fn given(&self, tile: &Tile, e: &Extents) -> u32 {
        self.asked(tile, e, |width, _| width)
    }

    /// Bytes per k that a workgroup asks for, where a row that is dense along the width takes so many for its own, of those of its lines.
    /// Rows that are dense along k come in whole lines, of which a round takes a part, and where rows begin anywhere often the end of one
    /// and the beginning of the next. The first level has the rest of them as long as no more lines than it holds have come since.
    fn asked(&self, tile: &Tile, e: &Extents, along_width: impl Fn(u32, u32) -> u32) -> u32 {
        let (bytes, line) = (tile.types.stored_bytes(), self.line);
        // What lies behind the last row or column is not asked for.
        let [m, n] = [(tile.m, e.m), (tile.n, e.n)].map(|(width, all)| (width as usize).min(all) as u32);
        let sides = [(m, e.deep.0, e.pitch[0]), (n, e.deep.1, e.pitch[1])].map(|(width, deep, pitch)| {
            let lines = Lines::of((width, deep), tile.k, (bytes, line), pitch as u32);
            Side { width, deep, lines }
        });
        let rounds = rounds_kept(&sides, f64::from(self.lines));
        let of = |(s, held): (&Side, f64)| {
            let row = f64::from(s.width * bytes);
            held * match s.deep {
                true => s.lines.come(rounds) * f64::from(line) / f64::from(tile.k),
                false => f64::from(along_width(
                    s.width * bytes,
                    (s.lines.touched / f64::from(tile.k) * f64::from(line)) as u32,
                ))
                .max(row),
            }
        };
        sides.iter().zip(e.held(f64::from(bytes))).map(of).sum::<f64>() as u32
    }
}

/// Cycles of a SIMD for each of two multiply-adds that are issued together: not all are, as registers allow. Fitted.
const PAIRED: f64 = 0.53;

/// Multiply-adds of a type are issued in pairs.
pub(super) fn in_pairs(target: Target, t: Type) -> bool {
    paired_multiply_adds(target, t).is_some()
}

/// Cycles of a SIMD for a wave's multiply-add of a type.
pub(in crate::kernels) fn multiply_add(target: Target, t: Type) -> f64 {
    let busy = |op: Op| target.op(op).map(|i| f64::from(i.busy.max(1)));
    match t {
        Type::F32 if in_pairs(target, t) => PAIRED,
        Type::F32 => busy(op::V_FMAC_F32).or(busy(op::V_FMA_F32)).unwrap_or(1.0),
        Type::F64 => busy(op::V_FMA_F64).unwrap_or(16.0),
        Type::I64 | Type::U64 => 6.0 * busy(op::V_MUL_LO_U32).unwrap_or(4.0),
        _ => busy(op::V_MUL_LO_U32).unwrap_or(4.0) + busy(op::V_ADD_U32).unwrap_or(1.0),
    }
}
