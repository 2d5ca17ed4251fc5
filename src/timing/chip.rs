//! What the model knows of a chip: `isa/latency/chips.csv`, one cell per constant and target, each with its evidence.

use barewave_isa::Target;
use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLock};

/// How well a constant is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// Measured on hardware.
    Measured,
    /// AMD's documentation or code.
    Documented,
    /// LLVM's or Mesa's tables.
    Compiler,
    /// Concluded from a relative or from other constants.
    Inferred,
    /// Fitted on measured times; the table says on which.
    Fitted,
    /// Nobody knows: the family's default stands in.
    Unknown,
}

impl Evidence {
    fn of(tag: &str) -> Option<Evidence> {
        Some(match tag {
            "m" => Evidence::Measured,
            "d" => Evidence::Documented,
            "l" => Evidence::Compiler,
            "i" => Evidence::Inferred,
            "f" => Evidence::Fitted,
            "?" => Evidence::Unknown,
            _ => return None,
        })
    }
}

/// A constant and how well it is known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Constant {
    /// The value, in the unit that the table's line states.
    pub value: f64,
    /// Where it comes from.
    pub evidence: Evidence,
}

macro_rules! chip {
    ($($name:ident)*) => {
        /// The constants of a chip, by the names of the table's lines.
        #[derive(Clone, Debug)]
        pub struct Chip {
            /// The target.
            pub target: Target,
            $(#[doc = concat!("`", stringify!($name), "` of `isa/latency/chips.csv`.")] pub $name: f64,)*
            evidence: Vec<(&'static str, Evidence)>,
        }
        impl Chip {
            fn read(target: Target, cell: impl Fn(&str) -> Option<Constant>) -> Option<Chip> {
                Some(Chip {
                    target,
                    $($name: cell(stringify!($name))?.value,)*
                    evidence: vec![$((stringify!($name), cell(stringify!($name))?.evidence),)*],
                })
            }

            /// Where a constant lies, by its name in the table.
            fn constant(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

chip! {
    cus shader_engines dies boost_mhz sustained_mhz burst_us burst_drop dram_gbs dram_share mall_mib mall_writes mall_bytes_clk l2_mib l2_bytes_clk l2_share
    l1_kib l1_line l1_bytes_clk lds_banks lds_bytes_clk lds_gathers lds_latency smem_hit smem_cold l1_hit l2_hit mall_hit dram vmem_cold vmem_crowd
    snapshot_clk snapshot_cold
    valu_to_memory valu_to_scalar salu_to_memory salu_to_branch salu_to_valu_scalar branch_taken vector_queue vector_retire scalar_read wait_release lds_backlog memory_backlog
    code_line code_lines matrix_shadow launch_us dispatch_clk validated
}

const TABLE: &str = include_str!("../../isa/latency/chips.csv");

/// Targets that are more like another one than like their parent in `targets.isa`: graphics processors beside a CPU, without memory of their own.
const RATHER: &[(&str, &str)] = &[("gfx1150", "gfx1151")];

/// Whose column of the table serves a target: its own or that of the nearest relative that has one.
fn column(mut name: &'static str) -> Option<&'static str> {
    let (header, _) = table();
    while !header.contains(&name) {
        let rather = RATHER.iter().find(|(of, _)| *of == name).map(|(_, like)| *like);
        name = rather.or_else(|| Target::parse(name).ok()?.info().parent)?;
    }
    Some(name)
}

/// The table: names of the columns, and lines.
fn table() -> &'static (Vec<&'static str>, Vec<Vec<&'static str>>) {
    static PARSED: OnceLock<(Vec<&str>, Vec<Vec<&str>>)> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut lines = TABLE.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        let header = lines.next().unwrap_or("").split(',').collect();
        (header, lines.map(|l| l.split(',').collect()).collect())
    })
}

fn cell(target: &str, name: &str) -> Option<Constant> {
    let (header, lines) = table();
    let column = header.iter().position(|h| *h == target)?;
    let (value, tag) = lines.iter().find(|l| l[0] == name)?.get(column)?.split_once(' ')?;
    Some(Constant { value: value.parse().ok()?, evidence: Evidence::of(tag)? })
}

impl Chip {
    /// The constants of a target, with what its product has otherwise ([`Target::facts`]); `None` for one that the table has no
    /// column and no relative for.
    pub fn of(target: Target) -> Option<Chip> {
        // By the name of the product: whoever compares ways to compute something asks for each of them.
        static MADE: RwLock<BTreeMap<&str, Option<Chip>>> = RwLock::new(BTreeMap::new());
        if let Some(chip) = MADE.read().unwrap_or_else(PoisonError::into_inner).get(target.name()) {
            return chip.clone();
        }
        let chip = Chip::made(target);
        MADE.write().unwrap_or_else(PoisonError::into_inner).insert(target.name(), chip.clone());
        chip
    }

    /// Reads the constants from the table.
    fn made(target: Target) -> Option<Chip> {
        let name = target.info().name;
        let like = column(name)?;
        let is_relative = like != name;
        let mut chip = Chip::read(target, |constant| cell(like, constant))?;
        if is_relative {
            chip.validated = 0.0;
            chip.cus = f64::from(target.info().cus);
            chip.evidence.iter_mut().for_each(|e| e.1 = Evidence::Inferred);
        }
        let (cus, boost) = (chip.cus, chip.boost_mhz);
        for (name, value) in target.facts() {
            if let Some(constant) = chip.constant(name) {
                *constant = *value;
            }
            if let Some(e) = chip.evidence.iter_mut().find(|e| e.0 == *name && !is_relative) {
                e.1 = Evidence::Documented;
            }
        }
        // Nobody has measured what clock a product holds: as much of its boost clock as its relative.
        chip.sustained_mhz *= chip.boost_mhz / boost;
        if chip.cus < cus {
            chip.burst_us = 0.0; // as `throttled` has it
        }
        Some(chip)
    }

    /// How well a constant is known, by its name in the table.
    pub fn evidence(&self, name: &str) -> Option<Evidence> {
        self.evidence.iter().find(|e| e.0 == name).map(|e| e.1)
    }

    /// Hardware measurements exist that the model was compared with. Elsewhere a figure must say that it was not.
    pub fn is_validated(&self) -> bool {
        self.validated > 0.0
    }

    /// ` (not validated)` where nobody has compared the model with this target, else nothing.
    pub fn note(&self) -> &'static str {
        if self.is_validated() { "" } else { " (not validated)" }
    }

    /// Microseconds of clocks at the boost clock.
    pub fn microseconds(&self, clocks: f64) -> f64 {
        clocks / self.boost_mhz
    }

    /// Clocks of a launch at the boost clock that it takes where that holds only for a while. `cus` are the compute units of the device: one
    /// with fewer than the chip has needs less power.
    pub fn throttled(&self, clocks: f64, cus: f64) -> f64 {
        let burst = self.burst_us * self.boost_mhz;
        let holds = burst <= 0.0 || cus < self.cus;
        if holds { clocks } else { clocks + (clocks - burst).max(0.0) * self.burst_drop }
    }

    /// Bytes a clock that kernels get from memory, at the boost clock.
    pub fn dram_bytes_clk(&self) -> f64 {
        self.dram_gbs * self.dram_share * 1e3 / self.boost_mhz
    }

    /// Share of so many bytes, used again and again, that the memory-side cache (MALL) still has: all that fit, and the less
    /// the more they overflow it, since the oldest go first: of 50 MB on gfx1102, which has 32 MiB, next to none is left.
    pub fn kept(&self, bytes: f64) -> f64 {
        kept(self.mall_mib * 1024.0 * 1024.0, bytes)
    }

    /// Clocks until so many waves have begun on `cus` compute units: each engine begins one after the other.
    pub fn dispatch(&self, waves: f64, cus: f64) -> f64 {
        waves * self.dispatch_clk / (self.shader_engines * (cus / self.cus).min(1.0))
    }

    /// Vector instructions are issued every fourth clock from each of four SIMDs in turn (GCN, CDNA).
    pub fn quad_cadence(&self) -> bool {
        self.target.info().simds == 4
    }
}

/// Share of so many bytes, used again and again, that a cache of a capacity still has ([`Chip::kept`]).
pub fn kept(capacity: f64, bytes: f64) -> f64 {
    (capacity / bytes.max(1.0)).min(1.0).powi(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_every_constant() {
        for t in Target::all() {
            let chip = Chip::of(t).unwrap_or_else(|| panic!("{t} has no constants"));
            assert!(chip.cus > 0.0 && chip.dram_bytes_clk() > 0.0 && chip.l1_line > 0.0, "{t}");
        }
        for t in Target::all().filter(|t| table().0.contains(&t.info().name)) {
            assert!(t.facts().is_empty(), "{t}: its column is that of its first product");
        }
        for t in Target::all().flat_map(|t| t.info().products) {
            let target = Target::parse(t).unwrap();
            let mut chip = Chip::of(target).unwrap();
            assert_eq!(chip.cus, f64::from(target.cus()), "{t}");
            for (name, value) in target.facts() {
                assert_eq!(chip.constant(name).map(|c| *c), Some(*value), "{name} of {t}");
            }
        }
        let (header, lines) = table();
        for line in lines {
            assert_eq!(line.len(), header.len(), "{}", line[0]);
            for target in &header[1..] {
                assert!(cell(target, line[0]).is_some(), "{} of {target} is no `value tag`", line[0]);
            }
        }
    }

    #[test]
    fn a_long_launch_loses_the_boost_clock() {
        let of = |t| Chip::of(t).unwrap();
        let chip = of(Target::GFX1100);
        let burst = chip.burst_us * chip.boost_mhz;
        assert_eq!(chip.throttled(burst, chip.cus), burst);
        assert!((chip.throttled(2.0 * burst, chip.cus) / burst - 2.2).abs() < 0.01);
        assert_eq!(of(Target::GFX1102).throttled(1e9, 32.0), 1e9);
        // MI300A has the power of MI300X for three quarters of its compute units.
        let chip = of(Target::GFX942);
        assert_eq!(chip.throttled(1e8, 228.0), 1e8);
        assert!(chip.throttled(1e8, 304.0) > 1.1e8);
    }

    #[test]
    fn what_was_not_measured_says_so() {
        let of = |t| Chip::of(t).unwrap();
        assert_eq!(of(Target::GFX942).note(), "");
        assert_eq!(of(Target::GFX1201).note(), " (not validated)");
        assert_eq!(of(Target::GFX942).evidence("l2_hit"), Some(Evidence::Measured));
        assert_eq!(of(Target::GFX900).evidence("sustained_mhz"), Some(Evidence::Unknown));
        assert_eq!(of(Target::GFX1031).evidence("l2_hit"), Some(Evidence::Inferred));
        assert_eq!(of(Target::GFX1031).cus, 40.0);
    }
}
