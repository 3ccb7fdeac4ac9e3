# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of Sphinx for the documentation site."""

project = "gpuops.cluster"
copyright = "The gpuops.cluster contributors"
html_title = project
html_theme = "sphinx_ansible_theme"
html_show_sphinx = False
extensions = ["myst_parser", "sphinx_antsibull_ext"]
pygments_style = "ansible"
highlight_language = "YAML+Jinja"
myst_heading_anchors = 3
# Labels of Ansible's own documentation, which is not read for this, so that the site builds without internet. Ends of
# examples that no lexer knows, such as a run's output.
suppress_warnings = ["ref.ref", "misc.highlighting_failure"]
