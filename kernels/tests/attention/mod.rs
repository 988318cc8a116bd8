mod forward;
mod reference;
