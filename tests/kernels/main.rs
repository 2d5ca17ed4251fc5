//! Kernels by what they compute, on emulated devices in strict mode, against references of the host.

#[path = "../support/mod.rs"]
mod support;

mod alike;
mod allowed;
mod behind;
mod beside;
mod bytes;
mod caches;
mod chained;
mod channels;
mod choices;
mod computed;
mod decoding;
mod depthwise;
mod direct;
mod divided;
mod dots;
mod executed;
mod fourier;
mod joined;
mod listings;
mod moved;
mod nibbles;
mod numerics;
mod packed;
mod parts;
mod pools;
mod products;
mod published;
mod quantised;
mod quotients;
mod rows;
mod scaled;
mod sections;
mod several;
mod shapes;
mod slices;
mod sparse;
mod staged;
mod typed;
mod types;
mod weights;
mod winograd;
mod words;
mod written;
