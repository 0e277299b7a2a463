"""Strong lottery tickets: a seed and a bit per weight."""

from strongticket._version import __version__ as __version__
