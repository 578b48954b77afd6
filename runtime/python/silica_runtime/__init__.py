# SPDX-License-Identifier: Apache-2.0
"""The program behind Python code contexts; see zygote.py beside this package."""
