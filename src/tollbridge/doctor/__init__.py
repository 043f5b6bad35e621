"""Examines a server: what it can do, what it refuses, and how Tollbridge should talk to it."""

from tollbridge.doctor.bench import Bounds
from tollbridge.doctor.examination import ABOUT, STEPS, Examination, Step
from tollbridge.doctor.findings import Finding, Verdict

__all__ = ["ABOUT", "STEPS", "Bounds", "Examination", "Finding", "Step", "Verdict"]
